#![doc = include_str!("../README.md")]

mod expansion;
mod family;
mod geometry;
mod image_size;
mod invalid;
mod python;
mod refused;

pub use expansion::{Expansion, Piece};
pub use family::Family;
pub use family::anyres::AnyRes;
pub use family::gemma3::{Gemma3, PanAndScan};
pub use family::gemma4::Gemma4;
pub use family::glm4v::Glm4v;
pub use family::idefics3::Idefics3;
pub use family::internvl::InternVl;
pub use family::kimi_k25::KimiK25;
pub use family::llama4::Llama4;
pub use family::llava::Llava;
pub use family::minicpmv::MiniCpmV;
pub use family::phi3v::Phi3v;
pub use family::phi4mm::Phi4Mm;
pub use family::pixtral::Pixtral;
pub use family::qwen_vl::QwenVl;
pub use family::vision_tower::VisionTower;
pub use geometry::{Geometry, PIXELS_MAX, Target};
pub use image_size::ImageSize;
pub use invalid::Invalid;
pub use refused::Refused;
