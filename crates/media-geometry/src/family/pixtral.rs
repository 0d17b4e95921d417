//! Pixtral and Mistral3: one token per (merged) patch, a break after each row
//! (`PixtralHFEncoderInfo` and `Mistral3HFEncoderInfo` of vLLM, `get_resize_output_image_size` of transformers).
//!
//! ```text
//! ([IMG] × columns [IMG_BREAK]) × rows, the last [IMG_BREAK] being [IMG_END]
//! ```

use std::borrow::Cow;

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, SIDE_MAX, within};
use crate::python::{div, float, floor};
use crate::refused::Refused;

/// Configuration of a Pixtral or Mistral3 model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixtral {
    /// The longest side after resizing, in pixels.
    pub longest_edge: u32,
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// Patches per token along each side; 1 for Pixtral.
    pub merge_size: u32,
    /// The token after each row.
    pub break_token: Cow<'static, str>,
    /// The token after the last row.
    pub end_token: Cow<'static, str>,
}

impl Pixtral {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("longest_edge", self.longest_edge, 1..=SIDE_MAX)?;
        within("patch_size", self.patch_size, 1..=SIDE_MAX)?;
        within("spatial_merge_size", self.merge_size, 1..=SIDE_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let longest = u64::from(self.longest_edge);
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        let ratio = div(width, longest).max(div(height, longest));
        let shrunk = |side: u64| if ratio > 1.0 { floor(float(side) / ratio) } else { side };
        let cell = u64::from(self.patch_size) * u64::from(self.merge_size);
        let rows = bounded(size, shrunk(height).div_ceil(cell))?;
        let cols = bounded(size, shrunk(width).div_ceil(cell))?;
        bounded(size, u64::from(rows) * (u64::from(cols) + 1))?;
        Ok(Expansion::whole(self.pieces(rows, cols)))
    }

    fn pieces(&self, rows: u32, cols: u32) -> Vec<Piece> {
        let row = |end: &Cow<'static, str>| {
            [Piece::Placeholder { count: cols }, Piece::Named { name: end.clone(), count: 1 }]
        };
        let mut pieces: Vec<Piece> = (1..rows).flat_map(|_| row(&self.break_token)).collect();
        pieces.extend(row(&self.end_token));
        pieces
    }
}
