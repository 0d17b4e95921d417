//! JPEG: the markers up to the first scan.
//!
//! ```text
//! ff d8   (ff marker, length u16 with itself, data)*   ff da: scan
//! SOF: bits u8, height u16, width u16, layers u8   APP1: "Exif\0\0" TIFF │ "http://ns.adobe.com/xap/1.0/\0" XMP
//! ```

use std::borrow::Cow;

use crate::bytes::{Bytes, Stop};
use crate::exif::oriented;
use crate::malformed::Malformed;
use crate::probe::Header;

const XMP_NAME: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const EXIF_NAME: &[u8] = b"Exif\0\0";

#[derive(Default)]
struct Found<'a> {
    size: Option<(u32, u32)>,
    exif: Option<Cow<'a, [u8]>>,
    xmp: Option<&'a [u8]>,
}

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let mut found = Found::default();
    found.scan(bytes)?;
    let Some((width, height)) = found.size else {
        return Err(Malformed::Part("JPEG without a frame").into());
    };
    Ok(Header::settled(width, height, oriented(found.exif.as_deref(), found.xmp)))
}

impl<'a> Found<'a> {
    /// Reads markers up to the first scan, tolerating what the reference tolerates.
    fn scan(&mut self, bytes: Bytes<'a>) -> Result<(), Stop> {
        let mut at = 2;
        loop {
            if bytes.u8(at)? != 0xff {
                at += 1;
                continue;
            }
            let marker = bytes.u8(at + 1)?;
            match marker {
                // Padding, or an escaped byte in junk.
                0xff => at += 1,
                0x00 => at += 2,
                0x01..=0xbf => return Err(Malformed::Part("JPEG marker").into()),
                0xc8 | 0xd0..=0xd9 | 0xf0..=0xfd => at += 2,
                0xc0..=0xc7 | 0xc9..=0xcf | 0xda..=0xef | 0xfe => {
                    let len = u64::from(bytes.u16_be(at + 2)?).max(2);
                    let data = bytes.read(at + 4, len - 2)?;
                    if marker == 0xda {
                        return Ok(());
                    }
                    self.segment(marker, data)?;
                    at += 2 + len;
                }
            }
        }
    }

    fn segment(&mut self, marker: u8, data: &'a [u8]) -> Result<(), Stop> {
        match marker {
            0xc4 | 0xcc | 0xdb..=0xdd | 0xdf => {}
            0xc0..=0xcf | 0xde => self.size = Some(frame(data)?),
            0xe1 => {
                if let Some(tiff) = data.strip_prefix(EXIF_NAME) {
                    match &mut self.exif {
                        // A block too long for one segment goes on in the next.
                        Some(block) => block.to_mut().extend_from_slice(tiff),
                        None => self.exif = Some(Cow::Borrowed(data)),
                    }
                } else if let Some(packet) = data.strip_prefix(XMP_NAME) {
                    self.xmp = Some(packet);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn frame(data: &[u8]) -> Result<(u32, u32), Stop> {
    let &[bits, h1, h0, w1, w0, layers, ..] = data else {
        return Err(Malformed::Part("JPEG frame").into());
    };
    if bits != 8 || !matches!(layers, 1 | 3 | 4) {
        return Err(Malformed::Unsupported("JPEG layer format").into());
    }
    Ok((u16::from_be_bytes([w1, w0]).into(), u16::from_be_bytes([h1, h0]).into()))
}
