//! What fetched bytes are.

use media_geometry::ImageSize;
use media_probe::Probe;

use super::Error;

/// Finds an image's size and its type. What is no image of a known format keeps the type its origin gives, if that
/// may be media at all.
pub(super) fn examine(
    bytes: &[u8],
    content_type: Option<&str>,
) -> Result<(Option<ImageSize>, String), Error> {
    match media_probe::probe_whole(bytes) {
        Probe::Sized { format, width, height, .. } | Probe::Tentative { format, width, height, .. } => {
            Ok((Some(ImageSize::new(width, height)), format.media_type().to_owned()))
        }
        Probe::Malformed(malformed) => Err(Error::NotAnImage { reason: malformed.to_string() }),
        Probe::NeedMore { .. } | Probe::Unknown => {
            let stated = content_type.unwrap_or("").split(';').next().unwrap_or_default().trim();
            let plain = stated.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/.+-".contains(&byte));
            let media = ["image/", "video/", "audio/", "application/octet-stream"]
                .iter()
                .any(|kind| stated.starts_with(kind));
            if media && plain {
                return Ok((None, stated.to_owned()));
            }
            let reason = if stated.is_empty() { "no content type".to_owned() } else { format!("{stated:?}") };
            Err(Error::NotAnImage { reason })
        }
    }
}
