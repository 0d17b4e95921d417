//! GIF: the screen's size, which a larger first frame extends.
//!
//! ```text
//! 0 "GIF89a"   6 width u16, height u16   10 flags   13 colour table   blocks: '!' kind sub-blocks │ ',' frame │ ';'
//! ```

use crate::bytes::{Bytes, Stop};
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::Header;

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let (width, height) = (bytes.u16_le(6)?, bytes.u16_le(8)?);
    let mut at = 13 + table(bytes.u8(10)?);
    loop {
        match bytes.u8(at)? {
            b'!' => at = skip(bytes, at + 2)?,
            b',' => break,
            b';' => return Err(Malformed::Part("GIF without a frame").into()),
            // The reference steps over bytes that begin no block.
            _ => at += 1,
        }
    }
    let side = |offset: u64, extent: u64| -> Result<u32, Stop> {
        Ok(u32::from(bytes.u16_le(at + offset)?) + u32::from(bytes.u16_le(at + extent)?))
    };
    let (right, bottom) = (side(1, 5)?, side(3, 7)?);
    Ok(Header::settled(right.max(width.into()), bottom.max(height.into()), Orientation::UPRIGHT))
}

/// Returns the size of the colour table that the flags announce.
fn table(flags: u8) -> u64 {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// Steps over sub-blocks, the empty one that ends them included.
fn skip(bytes: Bytes<'_>, mut at: u64) -> Result<u64, Stop> {
    loop {
        let len = bytes.u8(at)?;
        at += 1 + u64::from(len);
        if len == 0 {
            return Ok(at);
        }
    }
}
