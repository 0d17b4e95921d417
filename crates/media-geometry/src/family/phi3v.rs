//! Phi-3 and Phi-3.5 vision: the largest grid of crops, and the whole image
//! (`calc_num_image_tokens_from_image_size` of the published processor).

use crate::expansion::Expansion;
use crate::geometry::bounded;
use crate::image_size::ImageSize;
use crate::invalid::{Invalid, within};
use crate::python::{ceil, div, float, int};
use crate::refused::Refused;

/// Side of a crop in pixels.
const CROP: u64 = 336;
/// The most crops a configuration may allow.
const CROPS_MAX: u64 = 1024;

/// Configuration of a Phi-3 vision model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phi3v {
    /// The most crops (`num_crops`).
    pub crops_max: u32,
}

impl Phi3v {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        within("num_crops", self.crops_max, 1..=CROPS_MAX)
    }

    pub(crate) fn expand(&self, size: ImageSize) -> Result<Expansion, Refused> {
        let (long, short) = (size.width.max(size.height), size.width.min(size.height));
        let ratio = div(long.into(), short.into());
        let crops = self.crops(ratio);
        let across = ceil(float(int(float(crops * CROP) / ratio)) / float(CROP));
        if across == 0 {
            return Err(Refused::Unpredictable(size));
        }
        let rows = if size.width < size.height { crops } else { across };
        let tokens = (crops * across + 1) * 144 + 1 + (rows + 1) * 12;
        Ok(Expansion::placeholders(bounded(size, tokens)?))
    }

    /// Returns the most crops along the longer side.
    fn crops(&self, ratio: f64) -> u64 {
        let fits = |crops: u64| float(crops) * (float(crops) / ratio).ceil() <= f64::from(self.crops_max);
        (1..).take_while(|crops| fits(*crops)).last().unwrap_or(1)
    }
}
