//! MiniCPM-V 4.6: the image as a whole and in slices, behind its number in the request
//! (`image_processing_minicpmv4_6.py` of transformers, `minicpmv4_6.py` of vLLM).
//!
//! ```text
//! <image_id> 0 </image_id> <image> image × n </image> (<slice> image × m </slice>)… \n (<slice> …)…
//! ```

use std::borrow::Cow;

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, within};
use crate::python::{ceil, div, float, int, round};
use crate::refused::Refused;

/// The most slices a configuration may allow.
const SLICES_MAX: u64 = 256;
/// Patches per side of the unit that sizes are multiples of.
const UNIT_PATCHES: u64 = 4;

/// Configuration of a MiniCPM-V 4.6 model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MiniCpmV {
    /// Side of the square whose area an image or slice is brought to, in pixels.
    pub scale_resolution: u32,
    /// Side of a patch in pixels.
    pub patch_size: u32,
    /// The most slices, without the whole image; 1 never slices.
    pub slices_max: u32,
    /// Patches per token: 16, or 4 where the model keeps more.
    pub patches_per_token: u32,
}

impl MiniCpmV {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("scale_resolution", self.scale_resolution, 1..=1 << 14)?;
        within("patch_size", self.patch_size, 1..=1024)?;
        within("max_slice_nums", self.slices_max, 1..=SLICES_MAX)?;
        within("patches per token", self.patches_per_token, 1..=16)
    }

    /// Expands the image that is the `index`th of its request, from 0.
    pub(crate) fn expand(&self, size: ImageSize, index: usize) -> Result<Expansion, Refused> {
        let (height, width) = (float(size.height.into()), float(size.width.into()));
        let whole = bounded(size, self.tokens(height, width))?;
        let Some((rows, cols)) = self.grid(size) else {
            return Ok(Expansion::whole(head(index, whole)));
        };
        let refined =
            |side: u32, parts: u32| float(aligned(f64::from(side), parts.into())) / f64::from(parts);
        let slice = bounded(size, self.tokens(refined(size.height, rows), refined(size.width, cols)))?;
        bounded(size, u64::from(whole) + u64::from(rows * cols) * (u64::from(slice) + 3))?;
        let mut pieces = head(index, whole);
        for row in 0..rows {
            if row > 0 {
                pieces.push(Piece::text("\n"));
            }
            for _ in 0..cols {
                pieces.extend([
                    Piece::named("<slice>"),
                    Piece::Placeholder { count: slice },
                    Piece::named("</slice>"),
                ]);
            }
        }
        Ok(Expansion::whole(pieces))
    }

    /// Returns the tokens of an area brought to the configured one.
    fn tokens(&self, height: f64, width: f64) -> u64 {
        let ratio = width / height;
        let high = int(f64::from(self.scale_resolution) / ratio.sqrt());
        let wide = int(float(high) * ratio);
        let unit = u64::from(self.patch_size) * UNIT_PATCHES;
        let sides = aligned(float(high), unit) / u64::from(self.patch_size);
        sides.saturating_mul(aligned(float(wide), unit) / u64::from(self.patch_size))
            / u64::from(self.patches_per_token)
    }

    /// Chooses rows and columns of slices, if there are several.
    fn grid(&self, size: ImageSize) -> Option<(u32, u32)> {
        let log_ratio = div(size.width.into(), size.height.into()).ln();
        let area = u64::from(self.scale_resolution) * u64::from(self.scale_resolution);
        let wanted = ceil(div(size.pixels(), area)).min(self.slices_max.into());
        let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted > 1)?;
        let mut best = (1, 1);
        let mut least = f64::INFINITY;
        for slices in [wanted - 1, wanted, wanted + 1] {
            if slices == 1 || slices > self.slices_max {
                continue;
            }
            for rows in (1..=slices).filter(|rows| slices % rows == 0) {
                let cols = slices / rows;
                let error = (log_ratio - div(cols.into(), rows.into()).ln()).abs();
                if error < least || (error.total_cmp(&least).is_eq() && rows > best.0) {
                    (best, least) = ((rows, cols), error);
                }
            }
        }
        Some(best)
    }
}

/// Rounds to a multiple, at least one of it.
fn aligned(length: f64, unit: u64) -> u64 {
    round(length / float(unit)).saturating_mul(unit).max(unit)
}

fn head(index: usize, count: u32) -> Vec<Piece> {
    vec![
        Piece::named("<image_id>"),
        Piece::Text { text: Cow::Owned(index.to_string()) },
        Piece::named("</image_id>"),
        Piece::named("<image>"),
        Piece::Placeholder { count },
        Piece::named("</image>"),
    ]
}
