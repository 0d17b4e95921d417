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
pub use family::qwen_vl::QwenVl;
pub use geometry::{Geometry, PIXELS_MAX, Target};
pub use image_size::ImageSize;
pub use invalid::Invalid;
pub use refused::Refused;
