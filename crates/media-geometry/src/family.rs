//! The model families and their dispatch.

pub(crate) mod anyres;
pub(crate) mod gemma3;
pub(crate) mod gemma4;
pub(crate) mod glm4v;
pub(crate) mod idefics3;
pub(crate) mod internvl;
pub(crate) mod kimi_k25;
pub(crate) mod llama4;
pub(crate) mod llava;
pub(crate) mod minicpmv;
pub(crate) mod phi3v;
pub(crate) mod phi4mm;
pub(crate) mod pixtral;
pub(crate) mod qwen_vl;
mod tile_grid;
pub(crate) mod vision_tower;

use anyres::AnyRes;
use gemma3::Gemma3;
use gemma4::Gemma4;
use glm4v::Glm4v;
use idefics3::Idefics3;
use internvl::InternVl;
use kimi_k25::KimiK25;
use llama4::Llama4;
use llava::Llava;
use minicpmv::MiniCpmV;
use phi3v::Phi3v;
use phi4mm::Phi4Mm;
use pixtral::Pixtral;
use qwen_vl::QwenVl;

use crate::expansion::Expansion;
use crate::geometry::Target;
use crate::image_size::ImageSize;
use crate::invalid::Invalid;
use crate::refused::Refused;

/// A model family with its configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Family {
    /// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and what shares their resizing.
    QwenVl(QwenVl),
    /// LLaVA-1.5.
    Llava(Llava),
    /// LLaVA-NeXT and LLaVA-OneVision.
    AnyRes(AnyRes),
    /// Pixtral and Mistral3.
    Pixtral(Pixtral),
    /// Llama 4.
    Llama4(Llama4),
    /// Gemma 3.
    Gemma3(Gemma3),
    /// Gemma 4.
    Gemma4(Gemma4),
    /// Idefics3 and SmolVLM.
    Idefics3(Idefics3),
    /// InternVL.
    InternVl(InternVl),
    /// GLM-4.1V, GLM-4.5V, GLM-4.6V.
    Glm4v(Glm4v),
    /// Phi-3 and Phi-3.5 vision.
    Phi3v(Phi3v),
    /// Phi-4 multimodal.
    Phi4Mm(Phi4Mm),
    /// Kimi-K2.5.
    KimiK25(KimiK25),
    /// MiniCPM-V 4.6.
    MiniCpmV(MiniCpmV),
}

impl Family {
    /// Returns the family's name, as in documentation and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::QwenVl(_) => "qwen-vl",
            Self::Llava(_) => "llava",
            Self::AnyRes(_) => "llava-anyres",
            Self::Pixtral(_) => "pixtral",
            Self::Llama4(_) => "llama4",
            Self::Gemma3(_) => "gemma3",
            Self::Gemma4(_) => "gemma4",
            Self::Idefics3(_) => "idefics3",
            Self::InternVl(_) => "internvl",
            Self::Glm4v(_) => "glm4v",
            Self::Phi3v(_) => "phi3v",
            Self::Phi4Mm(_) => "phi4mm",
            Self::KimiK25(_) => "kimi-k25",
            Self::MiniCpmV(_) => "minicpmv",
        }
    }

    /// Returns what the expansion replaces in the rendered prompt.
    #[must_use]
    pub const fn target(&self) -> Target {
        match self {
            Self::Llama4(_) => Target::Named("<|image|>"),
            Self::Gemma3(_) => Target::Named("<start_of_image>"),
            Self::InternVl(InternVl { text_target: true, .. }) => Target::Text("<image>"),
            Self::Phi3v(_) | Self::Phi4Mm(_) => Target::Numbered("<|image_", "|>"),
            Self::QwenVl(_)
            | Self::Llava(_)
            | Self::AnyRes(_)
            | Self::Pixtral(_)
            | Self::Gemma4(_)
            | Self::Idefics3(_)
            | Self::InternVl(_)
            | Self::Glm4v(_)
            | Self::KimiK25(_)
            | Self::MiniCpmV(_) => Target::Placeholder,
        }
    }

    /// Returns the strings by which the family's vocabularies are known to spell the placeholder token, likeliest first.
    #[must_use]
    pub const fn placeholder_names(&self) -> &'static [&'static str] {
        match self {
            Self::QwenVl(_) | Self::MiniCpmV(_) => &["<|image_pad|>"],
            Self::Llava(_) | Self::AnyRes(_) | Self::Idefics3(_) => &["<image>"],
            Self::Pixtral(_) => &["[IMG]"],
            Self::Llama4(_) => &["<|patch|>"],
            Self::Gemma3(_) => &["<image_soft_token>"],
            Self::Gemma4(_) => &["<|image|>", "<image_soft_token>"],
            Self::InternVl(_) => &["<IMG_CONTEXT>"],
            Self::Glm4v(_) => &["<|image|>"],
            Self::Phi3v(_) => &["<|image|>"],
            Self::Phi4Mm(_) => &["<|endoftext10|>"],
            Self::KimiK25(_) => &["<|media_pad|>"],
        }
    }

    /// Says whether the reference counts structure tokens as the image's own.
    #[must_use]
    pub const fn counts_structure(&self) -> bool {
        matches!(self, Self::Llama4(_))
    }

    /// Says whether the engine merges the newline tokens at an expansion's ends with newline tokens beside it.
    #[must_use]
    pub const fn merges_newlines(&self) -> bool {
        matches!(self, Self::Gemma3(_))
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::QwenVl(config) => config.check(),
            Self::Llava(config) => config.check(),
            Self::AnyRes(config) => config.check(),
            Self::Pixtral(config) => config.check(),
            Self::Llama4(config) => config.check(),
            Self::Gemma3(config) => config.check(),
            Self::Gemma4(config) => config.check(),
            Self::Idefics3(config) => config.check(),
            Self::InternVl(config) => config.check(),
            Self::Glm4v(config) => config.check(),
            Self::Phi3v(config) => config.check(),
            Self::Phi4Mm(config) => config.check(),
            Self::KimiK25(config) => config.check(),
            Self::MiniCpmV(config) => config.check(),
        }
    }

    /// Expands the image that is the `index`th of its request.
    pub(crate) fn expand(&self, size: ImageSize, index: usize) -> Result<Expansion, Refused> {
        match self {
            Self::QwenVl(config) => config.expand(size),
            Self::Llava(config) => config.expand(size),
            Self::AnyRes(config) => config.expand(size),
            Self::Pixtral(config) => config.expand(size),
            Self::Llama4(config) => config.expand(size),
            Self::Gemma3(config) => config.expand(size),
            Self::Gemma4(config) => config.expand(size),
            Self::Idefics3(config) => config.expand(size),
            Self::InternVl(config) => config.expand(size),
            Self::Glm4v(config) => config.expand(size),
            Self::Phi3v(config) => config.expand(size),
            Self::Phi4Mm(config) => config.expand(size),
            Self::KimiK25(config) => config.expand(size),
            Self::MiniCpmV(config) => config.expand(size, index),
        }
    }
}
