//! Metadata items: EXIF and XMP, which turn an AVIF image only where no property does.
//!
//! ```text
//! iinf: infe( id, protection, type "Exif" │ "mime" name content-type )…      iloc: ( id, method, base, extents )…
//! ```

use super::Span;
use crate::bytes::{Bytes, Stop};
use crate::exif;
use crate::malformed::Malformed;
use crate::orientation::Orientation;

/// Decides the orientation from the metadata items, for an image without properties that turn it.
///
/// Engines set EXIF's orientation to what the properties say, so an EXIF block that has one hides XMP.
pub(super) fn orientation(bytes: Bytes<'_>, meta: Span) -> Result<Orientation, Stop> {
    let (mut exif, mut xmp) = (None, None);
    let Some(infos) = meta.find(bytes, *b"iinf")? else {
        return Ok(Orientation::UPRIGHT);
    };
    let head = if bytes.u8(infos.from)? == 0 { 6 } else { 8 };
    let entries = Span { from: infos.from.saturating_add(head), to: infos.to };
    entries.each(bytes, |_, name, span| {
        if &name == b"infe" {
            match info(bytes, span)? {
                Some((id, Kind::Exif)) => exif = exif.or(Some(id)),
                Some((id, Kind::Xmp)) => xmp = xmp.or(Some(id)),
                None => {}
            }
        }
        Ok(())
    })?;
    let (Some(xmp), Some(places)) = (xmp, meta.find(bytes, *b"iloc")?) else {
        return Ok(Orientation::UPRIGHT);
    };
    if let Some(id) = exif {
        // Four bytes say where in the item the block begins.
        let block = located(bytes, places, id)?.and_then(|item| item.get(4..));
        if block.is_some_and(exif::says_orientation) {
            return Ok(Orientation::UPRIGHT);
        }
    }
    let packet = located(bytes, places, xmp)?;
    Ok(packet.and_then(crate::xmp::orientation).unwrap_or(Orientation::UPRIGHT))
}

enum Kind {
    Exif,
    Xmp,
}

/// Reads an item's id and kind, if it is metadata.
fn info(bytes: Bytes<'_>, infe: Span) -> Result<Option<(u32, Kind)>, Stop> {
    let (id, at) = match bytes.u8(infe.from)? {
        2 => (bytes.u16_be(infe.from + 4)?.into(), infe.from + 8),
        3 => (bytes.u32_be(infe.from + 4)?, infe.from + 10),
        _ => return Ok(None),
    };
    Ok(match &bytes.array::<4>(at)? {
        b"Exif" => Some((id, Kind::Exif)),
        b"mime" => {
            let texts = bytes.read(at + 4, infe.to.saturating_sub(at + 4))?;
            let content_type = texts.split(|byte| *byte == 0).nth(1);
            (content_type == Some(b"application/rdf+xml")).then_some((id, Kind::Xmp))
        }
        _ => None,
    })
}

/// Returns an item's bytes, if it is one piece of the file itself.
fn located<'a>(bytes: Bytes<'a>, iloc: Span, wanted: u32) -> Result<Option<&'a [u8]>, Stop> {
    let version = bytes.u8(iloc.from)?;
    let [sizes, more] = bytes.array::<2>(iloc.from + 4)?;
    let (offset_size, length_size) = (sizes >> 4, sizes & 15);
    let (base_size, index_size) = (more >> 4, if version == 0 { 0 } else { more & 15 });
    let mut fields = Fields { bytes, at: iloc.from + 6 };
    let wide = if version < 2 { 2 } else { 4 };
    for _ in 0..fields.next(wide)? {
        let id = fields.next(wide)?;
        let method = if version == 0 { 0 } else { fields.next(2)? & 15 };
        fields.next(2)?;
        let base = fields.next(base_size)?;
        let extents = fields.next(2)?;
        if id == u64::from(wanted) {
            if method != 0 || extents != 1 {
                return Ok(None);
            }
            fields.next(index_size)?;
            let (offset, length) = (fields.next(offset_size)?, fields.next(length_size)?);
            return bytes.read(base.saturating_add(offset), length).map(Some);
        }
        // Not one by one: extents of no size would cost time that no byte pays for.
        fields.at += extents * u64::from(index_size + offset_size + length_size);
    }
    Err(Malformed::Part("item locations").into())
}

/// Big-endian numbers of any size, one behind the other.
struct Fields<'a> {
    bytes: Bytes<'a>,
    at: u64,
}

impl Fields<'_> {
    fn next(&mut self, size: u8) -> Result<u64, Stop> {
        let read = self.bytes.read(self.at, size.into())?;
        self.at += u64::from(size);
        Ok(read.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}
