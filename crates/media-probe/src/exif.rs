//! The orientation in an EXIF block, as Pillow reads it.

use crate::bytes::Bytes;
use crate::ifd::{Tiff, Value};
use crate::orientation::Orientation;
use crate::xmp;

/// EXIF's tag for the orientation.
pub(crate) const ORIENTATION: u16 = 274;

/// What an EXIF block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exif {
    /// Its header is broken: engines give up on orientation altogether.
    Unreadable,
    /// There is no such tag: XMP is asked.
    Absent,
    /// The tag is there, whatever its value.
    Found(Orientation),
}

/// Decides the orientation from a file's EXIF block and XMP packet.
pub(crate) fn oriented(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Orientation {
    match exif.map_or(Exif::Absent, read) {
        Exif::Unreadable => Orientation::UPRIGHT,
        Exif::Found(orientation) => orientation,
        Exif::Absent => xmp.and_then(xmp::orientation).unwrap_or(Orientation::UPRIGHT),
    }
}

/// Says whether an EXIF block keeps engines from asking XMP for the orientation.
pub(crate) fn says_orientation(block: &[u8]) -> bool {
    !matches!(read(block), Exif::Absent)
}

/// Turns a tag's value into an orientation; numbers of any type count, text and bytes don't.
pub(crate) fn orientation(value: Value<'_>) -> Orientation {
    let number = match value {
        Value::Integer(value) => u8::try_from(value).ok(),
        Value::Real(value) => (1_u8..=8).find(|number| f64::from(*number).total_cmp(&value).is_eq()),
        Value::Bytes(_) => None,
    };
    number.map_or(Orientation::UPRIGHT, Orientation::new)
}

fn read(block: &[u8]) -> Exif {
    let mut block = block;
    for _ in 0..2 {
        block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    }
    if block.is_empty() {
        return Exif::Absent;
    }
    let Ok(tiff) = Tiff::open(Bytes::new(block, true)) else {
        return Exif::Unreadable;
    };
    match tiff.find([ORIENTATION]) {
        Ok([Some(value)]) => Exif::Found(orientation(value)),
        Ok([None]) => Exif::Absent,
        Err(_) => Exif::Unreadable,
    }
}
