//! Kimi-K2.5: reduced to a budget of patches, never enlarged, padded to whole tokens (`navit_resize` of transformers'
//! `image_processing_kimi_k25.py`).

use crate::expansion::Expansion;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{COUNT_MAX, Invalid, SIDE_MAX, within};
use crate::python::{div, float, int};
use crate::refused::Refused;

/// Configuration of the Kimi-K2.5 image processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KimiK25 {
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Patches per token along each side.
    pub merge_size: u32,
    /// The most patches.
    pub patches_max: u32,
    /// The most patches along one side.
    pub side_patches_max: u32,
    /// A count that is the same for every image, if it is configured.
    pub fixed_tokens: Option<u32>,
}

impl KimiK25 {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("patch_size", self.patch_size, 1..=SIDE_MAX)?;
        within("merge_size", self.merge_size, 1..=SIDE_MAX)?;
        within("max_patches", self.patches_max, 1..=COUNT_MAX)?;
        within("size", self.side_patches_max, 1..=COUNT_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        if let Some(tokens) = self.fixed_tokens {
            return Ok(Expansion::placeholders(bounded(size, tokens.into())?));
        }
        let patch = u64::from(self.patch_size);
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        let longest = u64::from(self.side_patches_max) * patch;
        let patches = (width / patch).max(1) * (height / patch).max(1);
        let scale = div(self.patches_max.into(), patches)
            .sqrt()
            .min(div(longest, height))
            .min(div(longest, width))
            .min(1.0);
        let cell = patch * u64::from(self.merge_size);
        let cells = |side: u64| int(float(side) * scale).max(1).min(longest).div_ceil(cell);
        Ok(Expansion::placeholders(bounded(size, cells(width) * cells(height))?))
    }
}
