//! AVIF and HEIC: the primary item's properties.
//!
//! ```text
//! box: size u32, type, [size u64], data        ftyp   meta( pitm │ iprp( ipco( ispe │ irot │ imir … ) ipma … ) … )
//! ```

mod items;

use crate::bytes::{Bytes, Stop};
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::{Format, Header, Unsettled};

/// The longest `ftyp` box that is searched for a format, in bytes.
const FTYP_BYTES_MAX: u64 = 1024;

/// Returns the format that the `ftyp` box names: by its major brand, or for a general one by the first compatible brand
/// that is a format.
pub(crate) fn brand(bytes: Bytes<'_>) -> Result<Option<Format>, Stop> {
    let major = bytes.array::<4>(8)?;
    if !matches!(&major, b"mif1" | b"msf1" | b"miaf") {
        return Ok(format(major));
    }
    let end = u64::from(bytes.u32_be(0)?).min(FTYP_BYTES_MAX);
    let mut at = 16;
    while at + 4 <= end {
        if let Some(format) = format(bytes.array(at)?) {
            return Ok(Some(format));
        }
        at += 4;
    }
    Ok(None)
}

const fn format(brand: [u8; 4]) -> Option<Format> {
    match &brand {
        b"avif" | b"avis" => Some(Format::Avif),
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" => Some(Format::Heic),
        _ => None,
    }
}

pub(crate) fn header(bytes: Bytes<'_>, format: Format) -> Result<Header, Stop> {
    let file = Span { from: 0, to: u64::MAX };
    let meta = file.need(bytes, *b"meta")?.full();
    let item = primary(bytes, meta.need(bytes, *b"pitm")?)?;
    let properties = meta.need(bytes, *b"iprp")?;
    let container = properties.need(bytes, *b"ipco")?;
    let indices = associations(bytes, properties, item)?;
    let mut found = Properties::default();
    container.each(
        bytes,
        |index, name, span| {
            if indices.contains(&index) { found.read(bytes, name, span) } else { Ok(()) }
        },
    )?;
    let header = found.header(format)?;
    if format == Format::Heic || found.turned() {
        return Ok(header);
    }
    match items::orientation(bytes, meta) {
        Ok(orientation) => Ok(Header { orientation, ..header }),
        Err(Stop::NeedMore(_)) if header.width == header.height && !bytes.whole => Ok(header),
        Err(Stop::NeedMore(at_least)) if !bytes.whole => {
            Ok(Header { unsettled: Some(Unsettled::ahead(at_least)), ..header })
        }
        // Metadata that can't be read are left out.
        Err(_) => Ok(header),
    }
}

/// A box's data.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    /// Steps over a full box's version and flags.
    const fn full(self) -> Self {
        Self { from: self.from.saturating_add(4), to: self.to }
    }

    /// Visits the boxes inside, numbered from 1.
    fn each(
        self,
        bytes: Bytes<'_>,
        mut visit: impl FnMut(u32, [u8; 4], Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut at = self.from;
        let mut index = 1;
        while at < self.to {
            let (name, span) = open(bytes, at, self.to)?;
            visit(index, name, span)?;
            at = span.to;
            index += 1;
        }
        Ok(())
    }

    /// Finds the first box of a type inside.
    fn find(self, bytes: Bytes<'_>, wanted: [u8; 4]) -> Result<Option<Self>, Stop> {
        let mut at = self.from;
        while at < self.to {
            if self.to == u64::MAX && bytes.whole && at >= bytes.len() {
                break;
            }
            let (name, span) = open(bytes, at, self.to)?;
            if name == wanted {
                return Ok(Some(span));
            }
            at = span.to;
        }
        Ok(None)
    }

    /// Finds a box without which there is no image.
    fn need(self, bytes: Bytes<'_>, wanted: [u8; 4]) -> Result<Self, Stop> {
        self.find(bytes, wanted)?.ok_or_else(|| Malformed::Part("box structure").into())
    }
}

/// Reads a box's head; its end is always behind its start.
fn open(bytes: Bytes<'_>, at: u64, to: u64) -> Result<([u8; 4], Span), Stop> {
    let (size, name) = (u64::from(bytes.u32_be(at)?), bytes.array::<4>(at.saturating_add(4))?);
    let (head, size) = match size {
        0 => (8, to - at),
        1 => (16, bytes.array(at.saturating_add(8)).map(u64::from_be_bytes)?),
        _ => (8, size),
    };
    let end = at.saturating_add(size);
    if size < head || end > to {
        return Err(Malformed::Part("box size").into());
    }
    Ok((name, Span { from: at + head, to: end }))
}

fn primary(bytes: Bytes<'_>, pitm: Span) -> Result<u32, Stop> {
    let at = pitm.full().from;
    if bytes.u8(pitm.from)? == 0 { bytes.u16_be(at).map(u32::from) } else { bytes.u32_be(at) }
}

/// Returns the numbers of an item's properties.
fn associations(bytes: Bytes<'_>, properties: Span, item: u32) -> Result<Vec<u32>, Stop> {
    let mut indices = Vec::new();
    properties.each(bytes, |_, name, span| {
        if &name == b"ipma" && indices.is_empty() {
            indices = associated(bytes, span, item)?;
        }
        Ok(())
    })?;
    Ok(indices)
}

fn associated(bytes: Bytes<'_>, ipma: Span, item: u32) -> Result<Vec<u32>, Stop> {
    let [version, _, _, flags] = bytes.array::<4>(ipma.from)?;
    let entries = bytes.u32_be(ipma.from + 4)?;
    let mut at = ipma.from + 8;
    for _ in 0..entries {
        if at >= ipma.to {
            return Err(Malformed::Part("property associations").into());
        }
        let id = if version < 1 { bytes.u16_be(at)?.into() } else { bytes.u32_be(at)? };
        at += if version < 1 { 2 } else { 4 };
        let count = u64::from(bytes.u8(at)?);
        at += 1;
        let wide = flags & 1 != 0;
        if id == item {
            return (0..count)
                .map(|number| {
                    if wide {
                        bytes.u16_be(at + 2 * number).map(|index| u32::from(index & 0x7fff))
                    } else {
                        bytes.u8(at + number).map(|index| u32::from(index & 0x7f))
                    }
                })
                .collect();
        }
        at += if wide { 2 * count } else { count };
    }
    Ok(Vec::new())
}

#[derive(Default)]
struct Properties {
    size: Option<(u32, u32)>,
    turns: u8,
    mirror: Option<u8>,
    cropped: bool,
}

impl Properties {
    fn read(&mut self, bytes: Bytes<'_>, name: [u8; 4], span: Span) -> Result<(), Stop> {
        match &name {
            b"ispe" => self.size = Some((bytes.u32_be(span.from + 4)?, bytes.u32_be(span.from + 8)?)),
            b"irot" => self.turns = bytes.u8(span.from)? & 3,
            b"imir" => self.mirror = Some(bytes.u8(span.from)? & 1),
            b"clap" => self.cropped = true,
            _ => {}
        }
        Ok(())
    }

    /// Says whether a property turns or mirrors the image.
    const fn turned(&self) -> bool {
        self.turns != 0 || self.mirror.is_some()
    }

    fn header(&self, format: Format) -> Result<Header, Stop> {
        let Some((width, height)) = self.size else {
            return Err(Malformed::Part("image without a size").into());
        };
        if self.cropped && format == Format::Heic {
            return Err(Malformed::Unsupported("clean aperture").into());
        }
        Ok(Header::settled(width, height, self.orientation()))
    }

    /// Quarter turns are anticlockwise and come first; axis 0 mirrors top and bottom, axis 1 left and right.
    fn orientation(&self) -> Orientation {
        Orientation::new(match (self.turns, self.mirror) {
            (0, None) => 1,
            (1, None) => 8,
            (2, None) => 3,
            (_, None) => 6,
            (0, Some(0)) | (2, Some(1..)) => 4,
            (0, Some(1..)) | (2, Some(0)) => 2,
            (1, Some(0)) | (3.., Some(1..)) => 5,
            (1, Some(1..)) | (3.., Some(0)) => 7,
        })
    }
}
