//! InternVL: tiles on the closest grid and a thumbnail (`image_processing_got_ocr2.py` of transformers,
//! `internvl.py` of vLLM).
//!
//! ```text
//! <img> <IMG_CONTEXT> × n </img>
//! ```

use crate::expansion::{Expansion, Piece};
use crate::family::tile_grid::closest;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, SIDE_MAX, within};
use crate::refused::Refused;

/// The most tiles a configuration may allow: the search tries each grid.
const TILES_MAX: u64 = 256;

/// Configuration of an InternVL model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternVl {
    /// Side of a tile in pixels.
    pub tile_size: u32,
    /// The fewest tiles, without the thumbnail.
    pub tiles_min: u32,
    /// The most tiles, without the thumbnail.
    pub tiles_max: u32,
    /// Image tokens per tile.
    pub tile_tokens: u32,
    /// Whether an image of several tiles also has a thumbnail.
    pub thumbnail: bool,
    /// Whether the prompt holds `<image>` as text (the original checkpoints) instead of the placeholder.
    pub text_target: bool,
}

impl InternVl {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("tile size", self.tile_size, 1..=SIDE_MAX)?;
        within("min_patches", self.tiles_min, 1..=TILES_MAX)?;
        within("max_patches", self.tiles_max, 1..=TILES_MAX)?;
        within("image_seq_length", self.tile_tokens, 1..=SIDE_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let tiles = if self.tiles_max > 1 {
            let (cols, rows) = closest(size, self.tile_size, self.tiles_min, self.tiles_max);
            cols * rows
        } else {
            1
        };
        let tiles = if tiles > 1 && self.thumbnail { tiles + 1 } else { tiles };
        let count = bounded(size, u64::from(tiles) * u64::from(self.tile_tokens))?;
        Ok(Expansion::whole(vec![
            Piece::named("<img>"),
            Piece::Placeholder { count },
            Piece::named("</img>"),
        ]))
    }
}
