//! LLaVA-NeXT and LLaVA-OneVision: the image in tiles on the checkpoint's best resolution, unpadded, plus a base tile
//! (`select_best_resolution` and `_get_unpadded_features` of transformers, as vLLM's `llava_next.py` applies them).
//!
//! ```text
//! tokens = unpadded rows × (unpadded columns + 1 newline) + base
//! ```

use crate::expansion::Expansion;
use crate::family::vision_tower::VisionTower;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{COUNT_MAX, Invalid, SIDE_MAX, within};
use crate::python::{div, float, int, int_of_rounded_7};
use crate::refused::Refused;

/// The most resolutions a configuration may list.
const PINPOINTS_MAX: u64 = 1024;

/// Configuration of an any-resolution model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyRes {
    /// Its vision tower.
    pub tower: VisionTower,
    /// Resolutions that an image may be fitted into, as (height, width), in the checkpoint's order.
    pub pinpoints: Vec<(u32, u32)>,
    /// The most tiles' worth of features before they are pooled (OneVision's `anyres_max_9`); `None` never pools.
    pub tiles_max: Option<u32>,
}

impl AnyRes {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        self.tower.check()?;
        within("image_grid_pinpoints", self.pinpoints.len() as u64, 1..=PINPOINTS_MAX)?;
        for (height, width) in &self.pinpoints {
            within("image_grid_pinpoints", *height, u64::from(self.tower.image_size)..=SIDE_MAX)?;
            within("image_grid_pinpoints", *width, u64::from(self.tower.image_size)..=SIDE_MAX)?;
        }
        within("tiles_max", self.tiles_max.unwrap_or(1), 1..=COUNT_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (best_height, best_width) = self.best(size).ok_or(Refused::Unpredictable(size))?;
        let tile = self.tower.image_size;
        let grid = self.tower.grid();
        let (rows, cols) = (grid * u64::from(best_height / tile), grid * u64::from(best_width / tile));
        let (rows, cols) = unpadded(size, rows, cols).ok_or(Refused::Unpredictable(size))?;
        let (rows, cols) = self.pooled(rows, cols);
        let tokens = rows * cols + rows + self.tower.features();
        Ok(Expansion::placeholders(bounded(size, tokens)?))
    }

    /// Chooses the resolution that keeps most of the image, then wastes least; the first of equals.
    fn best(&self, size: ImageSize) -> Option<(u32, u32)> {
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        let mut best = None;
        let (mut most, mut least_waste) = (0, u64::MAX);
        for &(high, wide) in &self.pinpoints {
            let scale = div(wide.into(), width).min(div(high.into(), height));
            let downscaled = int(float(width) * scale).saturating_mul(int(float(height) * scale));
            let effective = downscaled.min(width * height);
            // Rounding can never take the effective area above the resolution's.
            let waste = (u64::from(wide) * u64::from(high)).saturating_sub(effective);
            if effective > most || (effective == most && waste < least_waste) {
                (most, least_waste) = (effective, waste);
                best = Some((high, wide));
            }
        }
        best
    }

    /// Pools a grid that is too large, by OneVision's rule.
    fn pooled(&self, rows: u64, cols: u64) -> (u64, u64) {
        let Some(tiles_max) = self.tiles_max else {
            return (rows, cols);
        };
        let limit = u64::from(tiles_max) * self.tower.grid() * self.tower.grid();
        let ratio = div(rows * cols, limit).sqrt();
        if ratio > 1.1 {
            (int((float(rows) / ratio).floor()), int((float(cols) / ratio).floor()))
        } else {
            (rows, cols)
        }
    }
}

/// Takes away the rows or columns that only pad the image. A thin image may lose all of them: the reference counts its
/// base tile, and a newline per row, like any other's.
fn unpadded(size: ImageSize, rows: u64, cols: u64) -> Option<(u64, u64)> {
    let (width, height) = (u64::from(size.width), u64::from(size.height));
    if div(width, height) > div(cols, rows) {
        let new = int_of_rounded_7(float(height) * div(cols, width));
        Some((rows.checked_sub(2 * (rows.checked_sub(new)? / 2))?, cols))
    } else {
        let new = int_of_rounded_7(float(width) * div(rows, height));
        Some((rows, cols.checked_sub(2 * (cols.checked_sub(new)? / 2))?))
    }
}
