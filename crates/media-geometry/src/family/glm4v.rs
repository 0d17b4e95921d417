//! GLM-4.1V and its kin (`smart_resize` of transformers' `image_processing_glm4v.py`): like Qwen-VL's, but a tiny image
//! is enlarged first, and an image counts as a pair of frames.

use crate::expansion::Expansion;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{AREA_MAX, Invalid, SIDE_MAX, within};
use crate::python::{ceil, div, float, floor, int, round};
use crate::refused::Refused;

const RATIO_MAX: u32 = 200;

/// Configuration of the GLM-4V image processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glm4v {
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Patches per token along each side.
    pub merge_size: u32,
    /// Frames that make one step in time; an image counts as so many.
    pub temporal_patch_size: u32,
    /// The fewest pixels over all frames after resizing.
    pub min_pixels: u64,
    /// The most pixels over all frames after resizing.
    pub max_pixels: u64,
}

impl Glm4v {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("patch_size", self.patch_size, 1..=4096)?;
        within("merge_size", self.merge_size, 1..=16)?;
        within("temporal_patch_size", self.temporal_patch_size, 1..=16)?;
        within("size.shortest_edge", self.min_pixels, 0..=AREA_MAX)?;
        within("size.longest_edge", self.max_pixels, 1..=AREA_MAX)?;
        within("token side", self.side(), 1..=SIDE_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (rows, cols) = self.resized(size)?;
        Ok(Expansion::placeholders(bounded(size, rows.saturating_mul(cols))?))
    }

    fn side(&self) -> u64 {
        u64::from(self.patch_size) * u64::from(self.merge_size)
    }

    /// Returns the resized height and width in tokens.
    fn resized(&self, size: ImageSize) -> Result<(u64, u64), Refused> {
        let side = self.side();
        let (height, width) = self.enlarged(size);
        if height == 0 || width == 0 {
            return Err(Refused::Unpredictable(size));
        }
        if div(height.max(width), height.min(width)) > f64::from(RATIO_MAX) {
            return Err(Refused::AspectRatio { size, limit: RATIO_MAX });
        }
        let frames = u64::from(self.temporal_patch_size);
        let pixels = float(frames * height * width);
        let (rows, cols) = (round(div(height, side)), round(div(width, side)));
        let resized = frames * rows * side * cols * side;
        let unit = float(side);
        if resized > self.max_pixels {
            let beta = (pixels / float(self.max_pixels)).sqrt();
            Ok((floor(float(height) / beta / unit).max(1), floor(float(width) / beta / unit).max(1)))
        } else if resized < self.min_pixels {
            let beta = (float(self.min_pixels) / pixels).sqrt();
            Ok((ceil(float(height) * beta / unit), ceil(float(width) * beta / unit)))
        } else {
            Ok((rows, cols))
        }
    }

    /// Enlarges an image with a side below a token's.
    fn enlarged(&self, size: ImageSize) -> (u64, u64) {
        let side = self.side();
        let (height, width) = (u64::from(size.height), u64::from(size.width));
        if height >= side && width >= side {
            return (height, width);
        }
        let scale = div(side, height).max(div(side, width));
        (int(float(height) * scale), int(float(width) * scale))
    }
}
