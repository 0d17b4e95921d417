//! TIFF: the first directory, which may lie anywhere in the file.

use crate::bytes::{Bytes, Stop};
use crate::exif::{ORIENTATION, orientation};
use crate::ifd::{Tiff, Value};
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::Header;
use crate::xmp;

const IMAGE_WIDTH: u16 = 256;
const IMAGE_LENGTH: u16 = 257;
const XMP: u16 = 700;

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let tiff = Tiff::open(bytes)?;
    let [width, height] = tiff.find([IMAGE_WIDTH, IMAGE_LENGTH])?;
    let [turn] = tiff.find([ORIENTATION])?;
    let turn = match turn {
        Some(value) => orientation(value),
        None => packet(&tiff)?,
    };
    Ok(Header::settled(side(width)?, side(height)?, turn))
}

fn packet(tiff: &Tiff<'_>) -> Result<Orientation, Stop> {
    Ok(match tiff.find([XMP])? {
        [Some(Value::Bytes(packet))] => xmp::orientation(packet).unwrap_or(Orientation::UPRIGHT),
        [_] => Orientation::UPRIGHT,
    })
}

fn side(value: Option<Value<'_>>) -> Result<u32, Stop> {
    match value {
        Some(Value::Integer(value)) => u32::try_from(value).map_err(|_| Malformed::Size.into()),
        Some(Value::Real(_) | Value::Bytes(_)) => Err(Malformed::Part("TIFF size").into()),
        None => Err(Malformed::Part("TIFF without a size").into()),
    }
}
