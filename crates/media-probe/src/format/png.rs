//! PNG: `IHDR`, then metadata in chunks before or after the image data.
//!
//! ```text
//! signature 8   chunks: length u32, name, data, crc u32
//! IHDR: width u32, height u32, …   eXIf: TIFF   tEXt │ zTXt │ iTXt: "Raw profile type exif", "XML:com.adobe.xmp"
//! ```

use std::borrow::Cow;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use crate::bytes::{Bytes, Stop};
use crate::exif::oriented;
use crate::malformed::Malformed;
use crate::orientation::Orientation;
use crate::probe::{Header, Unsettled};

/// The longest inflated text that the reference accepts.
const TEXT_BYTES_MAX: usize = 1 << 20;
const RAW_PROFILE: &[u8] = b"Raw profile type exif";
const XMP_NAME: &[u8] = b"XML:com.adobe.xmp";

/// The last of each kind, still packed: only what counts is inflated, and once.
#[derive(Default)]
struct Metadata<'a> {
    exif: Option<&'a [u8]>,
    raw_profile: Option<Text<'a>>,
    xmp: Option<Text<'a>>,
    animated: bool,
    data_seen: bool,
}

pub(crate) fn header(bytes: Bytes<'_>) -> Result<Header, Stop> {
    let (len, name) = (bytes.u32_be(8)?, bytes.array::<4>(12)?);
    if &name != b"IHDR" || len < 13 {
        return Err(Malformed::Part("PNG's first chunk").into());
    }
    let (width, height) = (bytes.u32_be(16)?, bytes.u32_be(20)?);
    let mut metadata = Metadata::default();
    let scanned = metadata.scan(bytes, 8 + 12 + u64::from(len));
    match scanned {
        Ok(()) => {}
        Err(Stop::NeedMore(_)) if width == height && !bytes.whole => {
            return Ok(Header::settled(width, height, Orientation::UPRIGHT));
        }
        Err(Stop::NeedMore(at_least)) if !bytes.whole => {
            let orientation = metadata.orientation()?;
            let unsettled = Some(Unsettled { at_least, behind_pixels: metadata.data_seen });
            return Ok(Header { width, height, orientation, unsettled });
        }
        // What is broken behind the image data is left out, as the reference does.
        Err(_) if metadata.data_seen => {}
        Err(stop) => return Err(stop),
    }
    Ok(Header::settled(width, height, metadata.orientation()?))
}

impl<'a> Metadata<'a> {
    fn orientation(&self) -> Result<Orientation, Stop> {
        let profile = match (self.exif, self.raw_profile) {
            (Some(exif), _) => Some(Cow::Borrowed(exif)),
            // A profile that isn't hexadecimal makes the reference give up, as it does on an unreadable block.
            (None, Some(text)) => text.value()?.map(|text| Cow::Owned(hex(&text).unwrap_or_else(|| vec![0]))),
            (None, None) => None,
        };
        let packet = self.xmp.map_or(Ok(None), Text::value)?;
        Ok(oriented(profile.as_deref(), packet.as_deref()))
    }

    fn scan(&mut self, bytes: Bytes<'a>, mut at: u64) -> Result<(), Stop> {
        loop {
            let (len, name) = (u64::from(bytes.u32_be(at)?), bytes.array::<4>(at + 4)?);
            if !name.iter().all(u8::is_ascii_alphanumeric) {
                return Err(Malformed::Part("PNG chunk name").into());
            }
            match &name {
                b"IEND" => return Ok(()),
                b"IDAT" => self.data_seen = true,
                b"acTL" => self.animated = true,
                // The next frame begins: the reference reads no further.
                b"fcTL" if self.data_seen && self.animated => return Ok(()),
                b"eXIf" => self.exif = Some(bytes.read(at + 8, len)?),
                b"tEXt" | b"zTXt" | b"iTXt" => self.text(name[0], bytes.read(at + 8, len)?),
                _ => {}
            }
            at += 12 + len;
        }
    }

    fn text(&mut self, kind: u8, data: &'a [u8]) {
        let zero = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
        let (key, rest) = data.split_at(zero);
        let text = Text { kind, rest: rest.get(1..).unwrap_or_default() };
        match key {
            RAW_PROFILE => self.raw_profile = Some(text),
            XMP_NAME => self.xmp = Some(text),
            b"exif" if kind == b't' => self.exif = Some(text.rest),
            _ => {}
        }
    }
}

/// A text chunk: what follows its key and zero byte.
#[derive(Clone, Copy, Debug)]
struct Text<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Text<'a> {
    /// Returns the text; `None` for one that the reference drops.
    fn value(self) -> Result<Option<Cow<'a, [u8]>>, Stop> {
        match (self.kind, self.rest) {
            (b't', text) => Ok(Some(Cow::Borrowed(text))),
            (b'z', [0, packed @ ..]) => {
                inflate(packed).map(|text| Some(Cow::Owned(text.unwrap_or_default())))
            }
            (b'z', []) => Ok(Some(Cow::Borrowed(&[]))),
            (b'z', _) => Err(Malformed::Part("PNG text compression").into()),
            (_, [packed, method, tail @ ..]) => international(*packed, *method, tail),
            _ => Ok(None),
        }
    }
}

/// Returns an international text, behind its language and translated key.
fn international(packed: u8, method: u8, tail: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Stop> {
    let mut parts = tail.splitn(3, |byte| *byte == 0);
    let (Some(_), Some(_), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(None);
    };
    match (packed, method) {
        (0, _) => Ok(Some(Cow::Borrowed(text))),
        (_, 0) => inflate(text).map(|text| text.map(Cow::Owned)),
        _ => Ok(None),
    }
}

/// Inflates a text; `None` if it is corrupt.
fn inflate(packed: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
    match decompress_to_vec_zlib_with_limit(packed, TEXT_BYTES_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.status == TINFLStatus::HasMoreOutput => {
            Err(Malformed::Unsupported("PNG text above 1 MiB").into())
        }
        // A stream that ends early gives what there is.
        Err(error) if error.status == TINFLStatus::FailedCannotMakeProgress => Ok(Some(error.output)),
        Err(_) => Ok(None),
    }
}

/// Decodes a raw profile: three lines of heading, then hexadecimal digits in lines.
fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.splitn(4, |byte| *byte == b'\n').nth(3).unwrap_or_default();
    let mut digits = digits.iter().filter(|byte| !byte.is_ascii_whitespace());
    let mut data = Vec::with_capacity(text.len() / 2);
    while let Some(high) = digits.next() {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        data.push(digit(high)? << 4 | digit(digits.next()?)?);
    }
    Some(data)
}
