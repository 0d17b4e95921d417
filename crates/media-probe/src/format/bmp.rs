//! Windows bitmaps.
//!
//! ```text
//! 0 "BM"   14 header size u32   18 width u32, height i32 (negative: top row first)   │ 12-byte header: u16, u16
//! ```

use crate::bytes::{Bytes, Stop};
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::Header;

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let (width, height) = match bytes.u32_le(14)? {
        12 => (bytes.u16_le(18)?.into(), bytes.u16_le(20)?.into()),
        40 | 52 | 56 | 64 | 108 | 124 => {
            let height = bytes.u32_le(22)?;
            // The sign is taken from the top byte alone, as the reference does.
            let flipped = bytes.u8(25)? == 0xff;
            (bytes.u32_le(18)?, if flipped { height.wrapping_neg() } else { height })
        }
        _ => return Err(Malformed::Unsupported("BMP header type").into()),
    };
    Ok(Header::settled(width, height, Orientation::UPRIGHT))
}
