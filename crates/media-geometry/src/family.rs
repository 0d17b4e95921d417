//! The model families and their dispatch.

pub(crate) mod qwen_vl;

use crate::expansion::Expansion;
use crate::geometry::Target;
use crate::image_size::ImageSize;
use crate::invalid::Invalid;
use crate::refused::Refused;
use qwen_vl::QwenVl;

/// A model family with its configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Family {
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what shares their resizing.
    QwenVl(QwenVl),
}

impl Family {
    /// Returns the family's name, as in documentation and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::QwenVl(_) => "qwen-vl",
        }
    }

    /// Returns what the expansion replaces in the rendered prompt.
    #[must_use]
    pub const fn target(&self) -> Target {
        match self {
            Self::QwenVl(_) => Target::Placeholder,
        }
    }

    /// Returns the strings by which the family's vocabularies are known to spell the placeholder token, likeliest first.
    #[must_use]
    pub const fn placeholder_names(&self) -> &'static [&'static str] {
        match self {
            Self::QwenVl(_) => &["<|image_pad|>"],
        }
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::QwenVl(config) => config.check(),
        }
    }

    pub(crate) fn expand(&self, size: ImageSize, _images: usize) -> Result<Expansion, Refused> {
        match self {
            Self::QwenVl(config) => config.expand(size),
        }
    }
}
