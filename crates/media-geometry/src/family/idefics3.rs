//! Idefics3 and SmolVLM: tiles with their row and column as text, then the whole image
//! (`get_number_of_image_patches` of transformers' `image_processing_idefics3.py`, `Idefics3ProcessingInfo` of vLLM).
//!
//! ```text
//! (<fake_token_around_image> <row_r_col_c> image × n … \n)… \n <fake_token_around_image> <global-img> image × n <fake…>
//! ```

use std::borrow::Cow;

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, SIDE_MAX, within};
use crate::python::{div, float, int};
use crate::refused::Refused;

/// The longest side that the reference resizes to, whatever the configuration.
const SIDE_LIMIT: u64 = 4096;
const FAKE: Piece = Piece::named("<fake_token_around_image>");

/// Configuration of an Idefics3 or SmolVLM model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idefics3 {
    /// The longest side after resizing, in pixels (`size.longest_edge`).
    pub longest_edge: u32,
    /// Side of a tile in pixels (`max_image_size.longest_edge`).
    pub tile_size: u32,
    /// Image tokens per tile.
    pub tile_tokens: u32,
    /// Whether images are split into tiles.
    pub splits: bool,
}

impl Idefics3 {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("size.longest_edge", self.longest_edge, 1..=SIDE_MAX)?;
        // At most 64 × 64 tiles.
        within("max_image_size.longest_edge", self.tile_size, SIDE_LIMIT / 64..=SIDE_MAX)?;
        within("image_seq_len", self.tile_tokens, 1..=SIDE_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (rows, cols) = if self.splits { self.grid(size) } else { (0, 0) };
        bounded(size, u64::from(self.tile_tokens + 3) * u64::from(rows * cols + 1))?;
        Ok(Expansion::whole(self.pieces(rows, cols)))
    }

    /// Returns the rows and columns of tiles, zero for an image that fits into one.
    fn grid(&self, size: ImageSize) -> (u32, u32) {
        let longest = u64::from(self.longest_edge);
        let (height, width) = rescaled(size.height.into(), size.width.into(), longest);
        let (height, width) =
            if height.max(width) > SIDE_LIMIT { scaled(height, width, SIDE_LIMIT) } else { (height, width) };
        let tiles =
            |side: u64| u32::try_from(side.max(1).div_ceil(u64::from(self.tile_size))).unwrap_or(u32::MAX);
        match (tiles(height), tiles(width)) {
            (1, 1) => (0, 0),
            grid => grid,
        }
    }

    fn pieces(&self, rows: u32, cols: u32) -> Vec<Piece> {
        let image = Piece::Placeholder { count: self.tile_tokens };
        let mut pieces = Vec::new();
        for row in 1..=rows {
            for col in 1..=cols {
                let place = Piece::Text { text: Cow::Owned(format!("<row_{row}_col_{col}>")) };
                pieces.extend([FAKE, place, image.clone()]);
            }
            // The last row's newline and the one before the global image are tokenised together.
            pieces.push(Piece::text(if row < rows { "\n" } else { "\n\n" }));
        }
        pieces.extend([FAKE, Piece::text("<global-img>"), image, FAKE]);
        pieces
    }
}

/// Resizes the longer side to `longest` and makes the shorter one even.
fn rescaled(height: u64, width: u64, longest: u64) -> (u64, u64) {
    let (height, width) = if width >= height {
        let (height, width) = scaled(height, width, longest);
        (height + height % 2, width)
    } else {
        let (height, width) = scaled(height, width, longest);
        (height, width + width % 2)
    };
    (height.max(1), width.max(1))
}

/// Resizes the longer side to `longest`, through the aspect ratio as a float.
fn scaled(height: u64, width: u64, longest: u64) -> (u64, u64) {
    let ratio = div(width, height);
    if width >= height {
        (int(float(longest) / ratio), longest)
    } else {
        (longest, int(float(longest) * ratio))
    }
}
