//! Qwen2-VL, Qwen2.5-VL and Qwen3-VL (`smart_resize` of transformers' `image_processing_qwen2_vl.py`).

use crate::expansion::Expansion;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{AREA_MAX, Invalid, SIDE_MAX, within};
use crate::python::{ceil, div, float, floor, round};
use crate::refused::Refused;

const RATIO_MAX: u32 = 200;

/// Configuration of the Qwen-VL image processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QwenVl {
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Patches per token along each side.
    pub merge_size: u32,
    /// The fewest pixels after resizing (`size.shortest_edge`).
    pub min_pixels: u64,
    /// The most pixels after resizing (`size.longest_edge`).
    pub max_pixels: u64,
}

impl QwenVl {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("patch_size", self.patch_size, 1..=SIDE_MAX)?;
        within("merge_size", self.merge_size, 1..=SIDE_MAX)?;
        within("min_pixels", self.min_pixels, 0..=AREA_MAX)?;
        within("max_pixels", self.max_pixels, 1..=AREA_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (rows, cols) = self.resized(size)?;
        Ok(Expansion::placeholders(bounded(size, rows.saturating_mul(cols))?))
    }

    /// Returns the resized height and width in tokens.
    fn resized(&self, size: ImageSize) -> Result<(u64, u64), Refused> {
        let (height, width) = (u64::from(size.height), u64::from(size.width));
        if div(height.max(width), height.min(width)) > f64::from(RATIO_MAX) {
            return Err(Refused::AspectRatio { size, limit: RATIO_MAX });
        }
        let factor = u64::from(self.patch_size) * u64::from(self.merge_size);
        let side = float(factor);
        let (rows, cols) = (round(div(height, factor)), round(div(width, factor)));
        let resized = (rows * factor).saturating_mul(cols * factor);
        if resized > self.max_pixels {
            let beta = div(height * width, self.max_pixels).sqrt();
            Ok((floor(float(height) / beta / side).max(1), floor(float(width) / beta / side).max(1)))
        } else if resized < self.min_pixels {
            let beta = div(self.min_pixels, height * width).sqrt();
            Ok((ceil(float(height) * beta / side), ceil(float(width) * beta / side)))
        } else {
            Ok((rows, cols))
        }
    }
}
