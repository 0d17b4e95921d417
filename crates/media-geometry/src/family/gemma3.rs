//! Gemma 3: a fixed number of tokens per image, and per crop where pan and scan is on
//! (`Gemma3ProcessingInfo` of vLLM, `image_processing_gemma3.py`).
//!
//! ```text
//! \n\n <start_of_image> image × 256 <end_of_image> \n\n
//! Here is the original image … and here are some crops to help you see better … … …
//! ```
//!
//! The engine merges the newlines with newline tokens around the expansion: `\n` + `\n\n` becomes `\n\n\n`, and so on.

use crate::expansion::{Expansion, Piece};
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{COUNT_MAX, Invalid, SIDE_MAX, within};
use crate::python::{div, floor};
use crate::refused::Refused;

/// Configuration of a Gemma 3 model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemma3 {
    /// Image tokens per image or crop.
    pub image_tokens: u32,
    /// Cropping of long images, if it is on.
    pub pan_and_scan: Option<PanAndScan>,
}

/// When and how Gemma 3 crops long images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PanAndScan {
    /// The smallest side of a crop in pixels.
    pub crop_size_min: u32,
    /// The most crops.
    pub crops_max: u32,
    /// The aspect ratio from which an image is cropped.
    pub ratio_min: f64,
}

impl Gemma3 {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("image_seq_length", self.image_tokens, 1..=SIDE_MAX)?;
        if let Some(pan) = self.pan_and_scan {
            within("pan_and_scan_min_crop_size", pan.crop_size_min, 1..=SIDE_MAX)?;
            within("pan_and_scan_max_num_crops", pan.crops_max, 1..=COUNT_MAX)?;
        }
        Ok(())
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let crops = self.pan_and_scan.map_or(0, |pan| pan.crops(size));
        bounded(size, (crops + 1) * u64::from(self.image_tokens + 3))?;
        let mut pieces = Vec::new();
        if crops == 0 {
            self.push(&mut pieces, "\n\n");
        } else {
            self.push(&mut pieces, "Here is the original image \n\n");
            self.push(&mut pieces, "\n\n and here are some crops to help you see better \n\n");
            for _ in 1..crops {
                self.push(&mut pieces, "\n\n \n\n");
            }
        }
        pieces.push(Piece::text("\n\n"));
        Ok(Expansion::whole(pieces))
    }

    fn push(&self, pieces: &mut Vec<Piece>, text: &'static str) {
        pieces.extend([
            Piece::text(text),
            Piece::named("<start_of_image>"),
            Piece::Placeholder { count: self.image_tokens },
            Piece::named("<end_of_image>"),
        ]);
    }
}

impl PanAndScan {
    fn crops(self, size: ImageSize) -> u64 {
        let (width, height) = (u64::from(size.width), u64::from(size.height));
        let (long, short) = (width.max(height), width.min(height));
        let ratio = div(long, short);
        if ratio < self.ratio_min {
            return 0;
        }
        let least = u64::from(self.crop_size_min);
        let crops = (long / least).min(floor(ratio + 0.5)).max(2).min(self.crops_max.into());
        if long.div_ceil(crops).min(short) < least { 0 } else { crops }
    }
}
