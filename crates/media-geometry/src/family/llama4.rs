//! Llama 4: tiles on the canvas that fits best, then the whole image (`image_processing_llama4.py`,
//! `_prompt_split_image` of `processing_llama4.py`).
//!
//! ```text
//! <|image_start|> ((patch × n <|tile_x_separator|>)… patch × n <|tile_y_separator|>)… <|image|> patch × n <|image_end|>
//! ```

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, SIDE_MAX, within};
use crate::refused::Refused;

/// The most tiles a configuration may allow.
const TILES_MAX: u64 = 1024;

/// Configuration of a Llama 4 model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Llama4 {
    /// Side of a tile in pixels.
    pub tile_size: u32,
    /// The most tiles, without the global one.
    pub tiles_max: u32,
    /// Patch tokens per tile.
    pub tile_tokens: u32,
    /// Whether an image is enlarged as far as the canvases allow.
    pub resize_to_max_canvas: bool,
}

impl Llama4 {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("size", self.tile_size, 1..=SIDE_MAX)?;
        within("max_patches", self.tiles_max, 1..=TILES_MAX)?;
        within("tile_tokens", self.tile_tokens, 1..=SIDE_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (rows, cols) = self.canvas(size).ok_or(Refused::Unpredictable(size))?;
        bounded(size, u64::from(self.tile_tokens + 1) * (u64::from(rows) * u64::from(cols) + 1) + 2)?;
        Ok(Expansion::whole(self.pieces(rows, cols)))
    }

    /// Chooses the canvas: the smallest enlargement, else the smallest reduction, then the smallest area.
    fn canvas(&self, size: ImageSize) -> Option<(u32, u32)> {
        let mut best: Option<((u32, u32), f32)> = None;
        for rows in 1..=self.tiles_max {
            for cols in 1..=self.tiles_max / rows {
                let scale = self.scale(size, rows, cols);
                let better = best.is_none_or(|((high, wide), least)| {
                    let wins = match (scale >= 1.0, least >= 1.0) {
                        (true, true) if self.resize_to_max_canvas => scale > least,
                        (true, true) => scale < least,
                        (false, false) => scale > least,
                        (enlarges, _) => enlarges,
                    };
                    wins || (scale.total_cmp(&least).is_eq() && rows * cols < high * wide)
                });
                if better {
                    best = Some(((rows, cols), scale));
                }
            }
        }
        best.map(|(canvas, _)| canvas)
    }

    /// Returns by how much an image grows on a canvas; the reference divides in 32-bit floats.
    #[expect(clippy::cast_precision_loss, reason = "the reference rounds sizes to 32-bit floats")]
    fn scale(&self, size: ImageSize, rows: u32, cols: u32) -> f32 {
        let wide = (cols * self.tile_size) as f32 / size.width as f32;
        let high = (rows * self.tile_size) as f32 / size.height as f32;
        if high > wide { wide } else { high }
    }

    fn pieces(&self, rows: u32, cols: u32) -> Vec<Piece> {
        let tile = Piece::Placeholder { count: self.tile_tokens };
        let mut pieces = vec![Piece::named("<|image_start|>")];
        if rows * cols > 1 {
            for _ in 0..rows {
                for _ in 1..cols {
                    pieces.extend([tile.clone(), Piece::named("<|tile_x_separator|>")]);
                }
                pieces.extend([tile.clone(), Piece::named("<|tile_y_separator|>")]);
            }
        }
        pieces.extend([Piece::named("<|image|>"), tile, Piece::named("<|image_end|>")]);
        pieces
    }
}
