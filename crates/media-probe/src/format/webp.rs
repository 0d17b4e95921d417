//! WebP.
//!
//! ```text
//! "RIFF" size u32 "WEBP"   chunks: name, size u32, data, padding to even
//! "VP8 " lossy │ "VP8L" lossless │ "VP8X" flags u8, 0 u24, width-1 u24, height-1 u24, …; "EXIF", "XMP " at the end
//! ```

use crate::bytes::{Bytes, Stop};
use crate::exif::oriented;
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::{Header, Unsettled};

const EXIF_FLAG: u8 = 0x08;
const XMP_FLAG: u8 = 0x04;
const FIRST: u64 = 12;

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    match &bytes.array::<4>(FIRST)? {
        b"VP8 " => lossy(bytes),
        b"VP8L" => lossless(bytes),
        b"VP8X" => extended(bytes),
        _ => Err(Malformed::Part("WebP's first chunk").into()),
    }
}

fn lossy(bytes: Bytes<'_>) -> Result<Header, Stop> {
    if &bytes.array::<3>(23)? != b"\x9d\x01\x2a" {
        return Err(Malformed::Part("VP8 frame").into());
    }
    let side = |at| bytes.u16_le(at).map(|value| u32::from(value & 0x3fff));
    Ok(Header::settled(side(26)?, side(28)?, Orientation::UPRIGHT))
}

fn lossless(bytes: Bytes<'_>) -> Result<Header, Stop> {
    if bytes.u8(20)? != 0x2f {
        return Err(Malformed::Part("VP8L frame").into());
    }
    let bits = bytes.u32_le(21)?;
    Ok(Header::settled((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1, Orientation::UPRIGHT))
}

fn extended(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let side = |at| bytes.array::<3>(at).map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]) + 1);
    let (width, height) = (side(24)?, side(27)?);
    let flags = bytes.u8(20)?;
    if flags & (EXIF_FLAG | XMP_FLAG) == 0 {
        return Ok(Header::settled(width, height, Orientation::UPRIGHT));
    }
    match metadata(bytes, flags) {
        Ok(orientation) => Ok(Header::settled(width, height, orientation)),
        Err(Stop::NeedMore(_)) if width == height => Ok(Header::settled(width, height, Orientation::UPRIGHT)),
        Err(Stop::NeedMore(at_least)) if !bytes.whole => {
            let unsettled = Some(Unsettled::ahead(at_least));
            Ok(Header { width, height, orientation: Orientation::UPRIGHT, unsettled })
        }
        Err(stop) => Err(stop),
    }
}

/// Walks the chunks to the metadata that the flags announce; what comes first of a kind counts.
fn metadata(bytes: Bytes<'_>, flags: u8) -> Result<Orientation, Stop> {
    let end = u64::from(bytes.u32_le(4)?) + 8;
    let (mut exif, mut xmp) = (Wanted::new(flags & EXIF_FLAG), Wanted::new(flags & XMP_FLAG));
    let mut at = FIRST;
    while at.saturating_add(8) <= end && !(exif.done() && xmp.done()) {
        let (name, len) = (bytes.array::<4>(at)?, u64::from(bytes.u32_le(at + 4)?));
        match &name {
            b"EXIF" => exif.offer(bytes.read(at + 8, len)?),
            b"XMP " => xmp.offer(bytes.read(at + 8, len)?),
            _ => {}
        }
        at += 8 + len + (len & 1);
    }
    Ok(oriented(exif.found, xmp.found))
}

struct Wanted<'a> {
    wanted: bool,
    found: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    const fn new(flag: u8) -> Self {
        Self { wanted: flag != 0, found: None }
    }

    const fn done(&self) -> bool {
        !self.wanted || self.found.is_some()
    }

    fn offer(&mut self, data: &'a [u8]) {
        if self.wanted && self.found.is_none() {
            self.found = Some(data);
        }
    }
}
