//! One parser per format, each reading what Pillow reads.

pub(crate) mod avif;
pub(crate) mod bmp;
pub(crate) mod gif;
pub(crate) mod jpeg;
pub(crate) mod png;
pub(crate) mod tiff;
pub(crate) mod webp;
