use crate::bytes::{Bytes, Stop};
use crate::format::{avif, bmp, gif, jpeg, png, tiff, webp};
use crate::malformed::Malformed;
use crate::orientation::Orientation;

/// An image file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Portable Network Graphics.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    WebP,
    /// Graphics Interchange Format.
    Gif,
    /// Windows bitmap.
    Bmp,
    /// TIFF, classic or big.
    Tiff,
    /// AVIF.
    Avif,
    /// HEIC; an engine with plain Pillow doesn't open it.
    Heic,
}

impl Format {
    /// Returns the media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::WebP => "image/webp",
            Self::Gif => "image/gif",
            Self::Bmp => "image/bmp",
            Self::Tiff => "image/tiff",
            Self::Avif => "image/avif",
            Self::Heic => "image/heic",
        }
    }
}

/// What a file's first bytes say about the image in it. Width and height are those of the image as shown: they have
/// changed places where the orientation says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The size, final.
    Sized {
        /// The file's format.
        format: Format,
        /// Pixels per row, after orientation.
        width: u32,
        /// Rows, after orientation.
        height: u32,
        /// The orientation that was applied; upright for a square image whose metadata the bytes don't reach.
        orientation: Orientation,
    },
    /// The size is known but metadata that may turn the image can still follow. WebP and PNG keep it at their end. Who
    /// can't read on may take the size as presumed.
    Tentative {
        /// The file's format.
        format: Format,
        /// Pixels per row, if nothing follows.
        width: u32,
        /// Rows, if nothing follows.
        height: u32,
        /// The length of the prefix that says more.
        at_least_bytes: u64,
        /// Whether such metadata can only stand behind the image data, and nothing announces them: rare, and told by no
        /// less than the whole file.
        behind_pixels: bool,
    },
    /// The size isn't in these bytes.
    NeedMore {
        /// The length of the prefix that says more, beyond the one given.
        at_least_bytes: u64,
    },
    /// None of the formats.
    Unknown,
    /// One of the formats, broken; engines refuse it too.
    Malformed(Malformed),
}

/// What a format's parser reads from a header: the size as stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) orientation: Orientation,
    /// What settles the orientation, if it isn't settled.
    pub(crate) unsettled: Option<Unsettled>,
}

/// Where what settles an orientation can stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    /// The length of the prefix that says more.
    pub(crate) at_least: u64,
    /// Whether it can stand only behind the image data, unannounced.
    pub(crate) behind_pixels: bool,
}

impl Unsettled {
    /// Makes that of metadata which are announced, or not passed yet.
    pub(crate) const fn ahead(at_least: u64) -> Self {
        Self { at_least, behind_pixels: false }
    }
}

impl Header {
    pub(crate) const fn settled(width: u32, height: u32, orientation: Orientation) -> Self {
        Self { width, height, orientation, unsettled: None }
    }
}

/// The longest signature, in bytes.
const SIGNATURE_BYTES: u64 = 12;

/// Probes the first bytes of a file; any length will do. After a `Sized` answer no longer prefix gives
/// another size.
#[must_use]
pub fn probe(prefix: &[u8]) -> Probe {
    examine(Bytes::new(prefix, false))
}

/// Probes a whole file: the answer is neither `NeedMore` nor `Tentative`.
#[must_use]
pub fn probe_whole(file: &[u8]) -> Probe {
    examine(Bytes::new(file, true))
}

fn examine(bytes: Bytes<'_>) -> Probe {
    let format = match signature(bytes) {
        Ok(format) => format,
        Err(stop) => return unread(stop, bytes),
    };
    let Some(format) = format else {
        return if bytes.len() < SIGNATURE_BYTES && !bytes.whole {
            Probe::NeedMore { at_least_bytes: SIGNATURE_BYTES }
        } else {
            Probe::Unknown
        };
    };
    let header = match format {
        Format::Png => png::header(bytes),
        Format::Jpeg => jpeg::header(bytes),
        Format::WebP => webp::header(bytes),
        Format::Gif => gif::header(bytes),
        Format::Bmp => bmp::header(bytes),
        Format::Tiff => tiff::header(bytes),
        Format::Avif | Format::Heic => avif::header(bytes, format),
    };
    match header {
        Ok(header) => conclude(format, header, bytes.whole),
        Err(stop) => unread(stop, bytes),
    }
}

fn unread(stop: Stop, bytes: Bytes<'_>) -> Probe {
    match stop {
        Stop::Malformed(malformed) => Probe::Malformed(malformed),
        Stop::NeedMore(_) if bytes.whole => Probe::Malformed(Malformed::Truncated),
        Stop::NeedMore(at_least) => Probe::NeedMore { at_least_bytes: at_least.max(bytes.len() + 1) },
    }
}

fn conclude(format: Format, header: Header, whole: bool) -> Probe {
    if header.width == 0 || header.height == 0 {
        return Probe::Malformed(Malformed::Size);
    }
    let orientation = header.orientation;
    let (width, height) =
        if orientation.swaps() { (header.height, header.width) } else { (header.width, header.height) };
    match header.unsettled {
        Some(Unsettled { at_least, behind_pixels }) if !whole => {
            Probe::Tentative { format, width, height, at_least_bytes: at_least, behind_pixels }
        }
        Some(_) | None => Probe::Sized { format, width, height, orientation },
    }
}

fn signature(bytes: Bytes<'_>) -> Result<Option<Format>, Stop> {
    let all = bytes.all();
    let starts = |magic: &[u8]| all.starts_with(magic);
    Ok(if starts(b"\x89PNG\r\n\x1a\n") {
        Some(Format::Png)
    } else if starts(b"\xff\xd8\xff") {
        Some(Format::Jpeg)
    } else if starts(b"RIFF") && all.get(8..12) == Some(b"WEBP") {
        Some(Format::WebP)
    } else if starts(b"GIF87a") || starts(b"GIF89a") {
        Some(Format::Gif)
    } else if starts(b"BM") {
        Some(Format::Bmp)
    } else if [b"II\x2a\0", b"MM\0\x2a", b"II\0\x2a", b"MM\x2a\0", b"II\x2b\0", b"MM\0\x2b"]
        .iter()
        .any(|magic| starts(*magic))
    {
        Some(Format::Tiff)
    } else if all.get(4..8) == Some(b"ftyp") {
        avif::brand(bytes)?
    } else {
        None
    })
}
