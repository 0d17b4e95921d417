//! The grid of tiles whose aspect ratio is closest to an image's, as InternVL and Phi-4 choose it.

use crate::image_size::ImageSize;
use crate::python::{div, float};

/// Chooses among all grids of `least` to `most` tiles, as (columns, rows).
///
/// Grids are tried by their number of tiles. At equal distance the later one wins while the image has more than half of
/// its area. The reference's order among grids of equal size only matters for a tie between them, which no `least` = 1
/// has.
pub(crate) fn closest(size: ImageSize, tile_size: u32, least: u32, most: u32) -> (u32, u32) {
    let ratio = div(size.width.into(), size.height.into());
    let area = float(size.pixels());
    let tile = float(u64::from(tile_size) * u64::from(tile_size));
    let mut best = (1, 1);
    let mut least_difference = f64::INFINITY;
    for tiles in least..=most {
        for cols in (1..=tiles).filter(|cols| tiles % cols == 0) {
            let rows = tiles / cols;
            let difference = (ratio - div(cols.into(), rows.into())).abs();
            let ties = difference.total_cmp(&least_difference).is_eq();
            if difference < least_difference
                || (ties && area > 0.5 * tile * f64::from(cols) * f64::from(rows))
            {
                least_difference = difference;
                best = (cols, rows);
            }
        }
    }
    best
}
