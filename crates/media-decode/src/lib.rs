#![doc = include_str!("../README.md")]

mod bitmap;
mod format;
mod raster;
mod unfit;

pub use bitmap::to_bitmap;
pub use unfit::Unfit;
