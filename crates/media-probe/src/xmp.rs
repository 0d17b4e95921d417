//! The orientation in an XMP packet: a text search, as engines do it.

use crate::orientation::Orientation;

const NAME: &[u8] = b"tiff:Orientation";

/// Finds the first `tiff:Orientation="n` or `tiff:Orientation>n`.
pub(crate) fn orientation(packet: &[u8]) -> Option<Orientation> {
    packet.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME).find_map(|(at, _)| {
        let rest = packet.get(at + NAME.len()..)?;
        let digit = rest.strip_prefix(b"=\"").or_else(|| rest.strip_prefix(b">"))?.first()?;
        digit.is_ascii_digit().then(|| Orientation::new(digit - b'0'))
    })
}
