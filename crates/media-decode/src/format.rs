//! The decoders, one per format; each gives the pixels as they are stored.

mod gif;
mod jpeg;
mod png;
mod webp;

pub(crate) use self::gif::decode as gif;
pub(crate) use self::jpeg::decode as jpeg;
pub(crate) use self::png::decode as png;
pub(crate) use self::webp::decode as webp;

/// What a decoder may allocate beyond the pixels, in bytes.
const WORK_BYTES_MAX: usize = 512 << 20;
