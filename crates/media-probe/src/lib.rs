#![doc = include_str!("../README.md")]

mod address;
mod bytes;
mod exif;
mod format;
mod ifd;
mod malformed;
mod orientation;
mod probe;
mod xmp;

pub use address::{AddressPolicy, Class, Denied, Network, NetworkError};
pub use malformed::Malformed;
pub use orientation::Orientation;
pub use probe::{Format, Probe, probe, probe_whole};
