//! TIFF's image file directories, as TIFF files and EXIF blocks have them, with Pillow's tolerance.
//!
//! ```text
//! header     "II" 0x2a 0x00 │ "MM" 0x00 0x2a, offset of the directory u32        (BigTIFF: 0x2b, 8, 0, u64)
//! directory  entries u16 │ entry × 12 bytes: tag u16, type u16, count u32, value or its offset u32
//!                                                                               (BigTIFF: u64 │ 20 bytes)
//! ```

use crate::bytes::{Bytes, Stop};
use crate::malformed::Malformed;

/// A tag's value, as far as anything here looks at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// The first of the integers.
    Integer(i64),
    /// The first of the fractions or floats.
    Real(f64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

/// A TIFF structure whose header has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiff<'a> {
    bytes: Bytes<'a>,
    little: bool,
    big: bool,
    first: u64,
}

struct Entry {
    tag: u16,
    kind: u16,
    count: u64,
    /// Where the value is stored if it fits into the entry.
    inline: u64,
}

impl<'a> Tiff<'a> {
    /// Reads the header.
    pub(crate) fn open(bytes: Bytes<'a>) -> Result<Self, Stop> {
        let (little, big) = match &bytes.array::<4>(0)? {
            b"II\x2a\x00" | b"II\x00\x2a" => (true, false),
            b"MM\x00\x2a" | b"MM\x2a\x00" => (false, false),
            b"II\x2b\x00" => (true, true),
            b"MM\x00\x2b" => (false, true),
            _ => return Err(Malformed::Part("TIFF header").into()),
        };
        let mut tiff = Self { bytes, little, big, first: 0 };
        // Pillow looks for BigTIFF's version in the third byte alone: big-endian BigTIFF is read as classic.
        tiff.big = big && little;
        tiff.first = if tiff.big { tiff.u64(8)? } else { tiff.u32(4)?.into() };
        Ok(tiff)
    }

    /// Reads the first directory's values of the wanted tags, in the tags' order.
    ///
    /// A whole structure that ends early gives what was read until then, like Pillow; a prefix asks for more.
    pub(crate) fn find<const N: usize>(&self, tags: [u16; N]) -> Result<[Option<Value<'a>>; N], Stop> {
        let mut found = [None; N];
        match self.scan(&tags, &mut found) {
            Err(Stop::NeedMore(_)) if self.bytes.whole => Ok(found),
            Ok(()) => Ok(found),
            Err(stop) => Err(stop),
        }
    }

    fn scan(&self, tags: &[u16], found: &mut [Option<Value<'a>>]) -> Result<(), Stop> {
        let (head, size) = if self.big { (8, 20) } else { (2, 12) };
        let entries = if self.big { self.u64(self.first)? } else { self.u16(self.first)?.into() };
        let start = self.first.saturating_add(head);
        let mut spent = 0_u64;
        for index in 0..entries {
            // Of entries with one tag the first counts: nothing behind the last wanted one matters.
            if found.iter().all(Option::is_some) {
                break;
            }
            let entry = self.entry(start.saturating_add(index.saturating_mul(size)))?;
            let wanted = tags.iter().zip(&mut *found).find(|(tag, _)| **tag == entry.tag);
            let slot = wanted.map(|(_, slot)| slot);
            if slot.as_ref().is_some_and(|slot| slot.is_some()) {
                continue;
            }
            let value = self.value(&entry, slot.is_some(), &mut spent)?;
            if let (Some(slot), Some(value)) = (slot, value) {
                *slot = Some(value);
            }
        }
        Ok(())
    }

    fn entry(&self, at: u64) -> Result<Entry, Stop> {
        let (tag, kind) = (self.u16(at)?, self.u16(at.saturating_add(2))?);
        let at = at.saturating_add(4);
        // The entry as a whole must be there, as the reference reads it in one piece.
        if self.big {
            self.u64(at.saturating_add(8))?;
            Ok(Entry { tag, kind, count: self.u64(at)?, inline: at.saturating_add(8) })
        } else {
            self.u32(at.saturating_add(4))?;
            Ok(Entry { tag, kind, count: self.u32(at)?.into(), inline: at.saturating_add(4) })
        }
    }

    /// Reads an entry's value; `None` for one that the reference skips, and for one nobody wants.
    fn value(&self, entry: &Entry, wanted: bool, spent: &mut u64) -> Result<Option<Value<'a>>, Stop> {
        let Some(unit) = unit(entry.kind) else {
            return Ok(None);
        };
        let size = entry.count.saturating_mul(unit);
        let at = if size <= if self.big { 8 } else { 4 } {
            entry.inline
        } else {
            let offset = if self.big { self.u64(entry.inline)? } else { self.u32(entry.inline)?.into() };
            *spent = spent.saturating_add(size);
            // The reference skips a value where all of them would be more than the file has.
            let too_much = *spent > self.bytes.len();
            if offset >= 1 << 63 || (self.bytes.whole && too_much) {
                return Ok(None);
            }
            if too_much {
                return Err(Stop::NeedMore(*spent));
            }
            // The reference reads every value, and stops at the first that isn't there.
            self.bytes.read(offset, size)?;
            offset
        };
        if !wanted || size == 0 {
            return Ok(None);
        }
        self.decode(entry.kind, at, size).map(Some)
    }

    fn decode(&self, kind: u16, at: u64, size: u64) -> Result<Value<'a>, Stop> {
        Ok(match kind {
            3 => Value::Integer(self.u16(at)?.into()),
            4 | 13 => Value::Integer(self.u32(at)?.into()),
            6 => Value::Integer(i64::from(i8::from_ne_bytes([self.bytes.u8(at)?]))),
            8 => Value::Integer(i64::from(i16::from_ne_bytes(self.u16(at)?.to_ne_bytes()))),
            9 => Value::Integer(i64::from(i32::from_ne_bytes(self.u32(at)?.to_ne_bytes()))),
            16 => Value::Integer(i64::try_from(self.u64(at)?).unwrap_or(i64::MAX)),
            5 => {
                let (over, under) = (self.u32(at)?, self.u32(at.saturating_add(4))?);
                Value::Real(f64::from(over) / f64::from(under))
            }
            10 => {
                let (over, under) = (self.u32(at)?, self.u32(at.saturating_add(4))?);
                let signed = |value: u32| f64::from(i32::from_ne_bytes(value.to_ne_bytes()));
                Value::Real(signed(over) / signed(under))
            }
            11 => Value::Real(f64::from(f32::from_bits(self.u32(at)?))),
            12 => Value::Real(f64::from_bits(self.u64(at)?)),
            _ => Value::Bytes(self.bytes.read(at, size)?),
        })
    }

    fn u16(&self, at: u64) -> Result<u16, Stop> {
        if self.little { self.bytes.u16_le(at) } else { self.bytes.u16_be(at) }
    }

    fn u32(&self, at: u64) -> Result<u32, Stop> {
        if self.little { self.bytes.u32_le(at) } else { self.bytes.u32_be(at) }
    }

    fn u64(&self, at: u64) -> Result<u64, Stop> {
        let read = self.bytes.array(at)?;
        Ok(if self.little { u64::from_le_bytes(read) } else { u64::from_be_bytes(read) })
    }
}

/// Returns a type's size in bytes, `None` for an unknown type.
const fn unit(kind: u16) -> Option<u64> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 => Some(8),
        _ => None,
    }
}
