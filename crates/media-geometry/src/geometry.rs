use crate::expansion::Expansion;
use crate::family::Family;
use crate::image_size::ImageSize;
use crate::invalid::Invalid;
use crate::refused::Refused;

/// The most pixels an image may have for vLLM to open it, by default (`VLLM_MAX_IMAGE_PIXELS`).
pub const PIXELS_MAX: u64 = 178_956_970;

/// The most tokens that are predicted for one image; a configuration that asks for more is a mistake.
const TOKENS_MAX: u64 = 1 << 20;

/// What in a rendered prompt stands for an image before its expansion replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The placeholder token itself.
    Placeholder,
    /// Another token of the vocabulary, named by its string.
    Named(&'static str),
    /// Text, tokenised as part of the prompt.
    Text(&'static str),
    /// Text with the image's number in the request, from 1, between the two parts.
    Numbered(&'static str, &'static str),
}

/// How a model turns the sizes of a request's images into tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    family: Family,
    pixels_max: u64,
}

impl Geometry {
    /// Creates the geometry of a configured family, with vLLM's default limit of pixels.
    ///
    /// # Errors
    /// When a value of the configuration makes no sense; no size can be predicted with it then.
    pub fn new(family: Family) -> Result<Self, Invalid> {
        family.check()?;
        Ok(Self { family, pixels_max: PIXELS_MAX })
    }

    /// Replaces the most pixels an image may have; at most 2^40.
    #[must_use]
    pub fn with_pixels_max(self, pixels_max: u64) -> Self {
        Self { pixels_max: pixels_max.min(1 << 40), ..self }
    }

    /// Returns the family and its configuration.
    #[must_use]
    pub const fn family(&self) -> &Family {
        &self.family
    }

    /// Expands each image, given all images of the request in order: some families count depending on the others.
    ///
    /// The answer has one element per size, in order. A refused image doesn't refuse the others.
    #[must_use]
    pub fn expand(&self, sizes: &[ImageSize]) -> Vec<Result<Expansion, Refused>> {
        let one = |(index, &size)| self.check(size).and_then(|()| self.family.expand(size, index));
        sizes.iter().enumerate().map(one).collect()
    }

    fn check(&self, size: ImageSize) -> Result<(), Refused> {
        if size.width == 0 || size.height == 0 {
            return Err(Refused::Empty(size));
        }
        if size.pixels() > self.pixels_max {
            return Err(Refused::TooManyPixels { size, limit: self.pixels_max });
        }
        Ok(())
    }
}

/// Checks a count against the bound on predictions.
pub(crate) fn bounded(size: ImageSize, tokens: u64) -> Result<u32, Refused> {
    match u32::try_from(tokens) {
        Ok(0) => Err(Refused::Unpredictable(size)),
        Ok(count) if tokens <= TOKENS_MAX => Ok(count),
        Ok(_) | Err(_) => Err(Refused::TooManyTokens { size, tokens, limit: TOKENS_MAX }),
    }
}
