//! Gemma 4: the largest grid of pooled patches within a budget (`get_aspect_ratio_preserving_size` of transformers'
//! `image_processing_gemma4.py`).
//!
//! ```text
//! begin-of-image, image × n, end-of-image
//! ```
//!
//! vLLM computes the same count by other operations; where the two round differently the engine fails, so that size is
//! refused.

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{COUNT_MAX, Invalid, SIDE_MAX, within};
use crate::python::{div, float, floor};
use crate::refused::Refused;

/// Configuration of a Gemma 4 model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemma4 {
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Patches per token along each side.
    pub pooling_size: u32,
    /// The most image tokens.
    pub tokens_max: u32,
    /// Id of the token before the image tokens.
    pub begin_id: u32,
    /// Id of the token after the image tokens.
    pub end_id: u32,
}

impl Gemma4 {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("patch_size", self.patch_size, 1..=SIDE_MAX)?;
        within("pooling_kernel_size", self.pooling_size, 1..=256)?;
        within("max_soft_tokens", self.tokens_max, 1..=COUNT_MAX)?;
        // Products of the three stay exact in floating point.
        within("image area", self.area(), 1..=1 << 52)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let count = self.count(size).filter(|count| self.count_by_vllm(size) == *count);
        let count = bounded(size, count.ok_or(Refused::Unpredictable(size))?)?;
        Ok(Expansion::whole(vec![
            Piece::Id { id: self.begin_id, count: 1 },
            Piece::Placeholder { count },
            Piece::Id { id: self.end_id, count: 1 },
        ]))
    }

    /// Returns the number of pixels in the budget.
    fn area(&self) -> u64 {
        let side = u64::from(self.patch_size) * u64::from(self.pooling_size);
        (side * side).saturating_mul(self.tokens_max.into())
    }

    fn count(&self, size: ImageSize) -> Option<u64> {
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        let side = float(u64::from(self.patch_size) * u64::from(self.pooling_size));
        let most = u64::from(self.tokens_max);
        let factor = div(self.area(), height * width).sqrt();
        let (rows, cols) = (floor(factor * float(height) / side), floor(factor * float(width) / side));
        let (rows, cols) = match (rows, cols) {
            (0, 0) => return None,
            (0, _) => (1, (width / height).min(most)),
            (_, 0) => ((height / width).min(most), 1),
            sides => sides,
        };
        let tokens = rows.saturating_mul(cols);
        (tokens <= most).then_some(tokens)
    }

    fn count_by_vllm(&self, size: ImageSize) -> u64 {
        let patch = f64::from(self.patch_size);
        let side = float(u64::from(self.patch_size) * u64::from(self.pooling_size));
        let budget = float(u64::from(self.tokens_max) * u64::from(self.pooling_size).pow(2));
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let scale = (budget / ((height / patch) * (width / patch))).sqrt();
        let rows = floor(height * scale / side).max(1);
        let cols = floor(width * scale / side).max(1);
        rows.saturating_mul(cols).min(self.tokens_max.into())
    }
}
