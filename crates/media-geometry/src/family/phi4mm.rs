//! Phi-4 multimodal: tiles without the features that only pad, and the whole image
//! (`image_processing_phi4_multimodal.py` of transformers, `phi4mm.py` of vLLM).

use crate::expansion::Expansion;
use crate::family::tile_grid::closest;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, within};
use crate::python::{div, float, int};
use crate::refused::Refused;

/// The most tiles a configuration may allow.
const TILES_MAX: u64 = 256;
/// The shortest side after resizing that the reference accepts, in pixels.
const SIDE_MIN: u64 = 10;

/// Configuration of a Phi-4 multimodal model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phi4Mm {
    /// Side of a tile in pixels.
    pub tile_size: u32,
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// The most tiles (`dynamic_hd`).
    pub tiles_max: u32,
}

impl Phi4Mm {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("size", self.tile_size, 1..=4096)?;
        within("patch_size", self.patch_size, 1..=u64::from(self.tile_size))?;
        within("size modulo 2 patch_size", self.tile_size % (2 * self.patch_size).max(1), 0..=0)?;
        within("dynamic_hd", self.tiles_max, 1..=TILES_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let tile = u64::from(self.tile_size);
        let (cols, rows) = self.grid(size);
        let target = (cols * tile, rows * tile);
        let (width, height) = fitted(size, target);
        if width.min(height) < SIDE_MIN {
            return Err(Refused::Unpredictable(size));
        }
        // Tokens are two by two patches; those of padding alone are left out.
        let side = tile / u64::from(self.patch_size) / 2;
        let seen = |tiles: u64, padding: u64| {
            (2 * side * tiles).saturating_sub(padding / u64::from(self.patch_size)).div_ceil(2)
        };
        let (wide, high) = (seen(cols, target.0 - width), seen(rows, target.1 - height));
        let tokens = side * side + 1 + wide * high + high + side;
        Ok(Expansion::placeholders(bounded(size, tokens)?))
    }

    /// Returns columns and rows of tiles.
    fn grid(&self, size: ImageSize) -> (u64, u64) {
        let (cols, rows) = (size.width.div_ceil(self.tile_size), size.height.div_ceil(self.tile_size));
        if u64::from(cols) * u64::from(rows) <= u64::from(self.tiles_max) {
            return (cols.into(), rows.into());
        }
        let (cols, rows) = closest(size, self.tile_size, 1, self.tiles_max);
        (cols.into(), rows.into())
    }
}

/// Fits an image into the target, as (width, height).
fn fitted(size: ImageSize, (target_width, target_height): (u64, u64)) -> (u64, u64) {
    let (width, height) = (u64::from(size.width), u64::from(size.height));
    let (wide, high) = (div(target_width, width), div(target_height, height));
    if wide < high {
        (target_width, int(float(height) * wide).min(target_height))
    } else {
        (int(float(width) * high).min(target_width), target_height)
    }
}
