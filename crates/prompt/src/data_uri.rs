//! Data URIs (RFC 2397) as engines read them.

use bytes::Bytes;

use crate::error::MediaFault;
use crate::media_identity::{Identified, MediaHasher};

/// How much base64 text is decoded at a time; a multiple of 4.
const CHUNK: usize = 64 * 1024;

/// A base64 data URI, shared with the body it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataUri {
    media_type: String,
    payload: Bytes,
}

impl DataUri {
    /// Splits a data URI: `data:[<type>][;<param>=<value>]*;base64,<payload>`.
    ///
    /// # Errors
    /// When there is no comma, or the encoding is not base64. The payload is not looked at.
    pub fn parse(uri: &Bytes) -> Result<Self, MediaFault> {
        let comma = uri.iter().position(|&byte| byte == b',').ok_or(MediaFault::NoComma)?;
        let head = uri.get(5..comma).unwrap_or_default();
        let head = std::str::from_utf8(head).map_err(|_| MediaFault::NotBase64)?;
        let (types, encoding) = head.rsplit_once(';').ok_or(MediaFault::NotBase64)?;
        if encoding != "base64" {
            return Err(MediaFault::NotBase64);
        }
        let media_type = types.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { media_type, payload: uri.slice(comma + 1..) })
    }

    /// Spells bytes as a base64 data URI of a media type.
    #[must_use]
    pub fn spell(media_type: &str, bytes: &[u8]) -> Bytes {
        let mut uri = Vec::with_capacity(bytes.len().div_ceil(3) * 4 + media_type.len() + 16);
        uri.extend_from_slice(b"data:");
        uri.extend_from_slice(media_type.as_bytes());
        uri.extend_from_slice(b";base64,");
        crate::base64_text::append(bytes, &mut uri);
        Bytes::from(uri)
    }

    /// Returns the media type as the client states it, such as `image/png`; may be empty.
    #[must_use]
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Returns the base64 text.
    #[must_use]
    pub const fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Returns how many bytes the payload decodes to, at most 2 too many while padding is not counted out.
    #[must_use]
    pub fn decoded_len(&self) -> u64 {
        u64::try_from(self.payload.len() / 4 * 3).unwrap_or(u64::MAX)
    }

    /// Decodes the payload, bounded.
    ///
    /// # Errors
    /// When it is empty, not base64, or longer than `bytes_max`.
    pub fn decode(&self, bytes_max: u64) -> Result<Vec<u8>, MediaFault> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.decoded_len().min(bytes_max)).unwrap_or(0));
        self.each_chunk(bytes_max, |chunk| bytes.extend_from_slice(chunk))?;
        Ok(bytes)
    }

    /// Decodes the payload in small chunks, hashing it; of its bytes only the first are kept, as many as `keep` says of
    /// the first chunk (48 KiB, or all if there are fewer).
    ///
    /// # Errors
    /// When it is empty, not base64, or longer than `bytes_max`.
    pub fn identify(
        &self,
        bytes_max: u64,
        keep: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Identified, MediaFault> {
        let (mut hasher, mut prefix) = (MediaHasher::new(), Vec::new());
        let (mut keep, mut prefix_max) = (Some(keep), 0);
        let bytes = self.each_chunk(bytes_max, |chunk| {
            hasher.update(chunk);
            if let Some(keep) = keep.take() {
                prefix_max = keep(chunk);
                prefix.reserve_exact(prefix_max.min(self.payload.len() / 4 * 3));
            }
            let room = prefix_max.saturating_sub(prefix.len()).min(chunk.len());
            prefix.extend_from_slice(chunk.get(..room).unwrap_or_default());
        })?;
        Ok(Identified { id: hasher.finish(), bytes, prefix })
    }

    /// Decodes the payload's first bytes, at least `prefix_max` of them where there are so many.
    ///
    /// # Errors
    /// When that part is not base64.
    pub fn prefix(&self, prefix_max: usize) -> Result<Vec<u8>, MediaFault> {
        let text = self.payload.get(..prefix_max.div_ceil(3).saturating_mul(4)).unwrap_or(&self.payload);
        let mut prefix = vec![0; text.len() / 4 * 3];
        let len = crate::base64_text::decode(text, &mut prefix).map_err(|at| MediaFault::Base64 { at })?;
        prefix.truncate(len);
        Ok(prefix)
    }

    fn each_chunk(&self, bytes_max: u64, mut sink: impl FnMut(&[u8])) -> Result<u64, MediaFault> {
        if self.payload.is_empty() {
            return Err(MediaFault::Empty);
        }
        if self.decoded_len().saturating_sub(2) > bytes_max {
            return Err(MediaFault::TooLarge { bytes: self.decoded_len(), limit: bytes_max });
        }
        let mut buffer = vec![0; CHUNK.min(self.payload.len().next_multiple_of(4)) / 4 * 3];
        let mut total = 0_u64;
        let mut chunks = self.payload.chunks(CHUNK).enumerate().peekable();
        while let Some((index, text)) = chunks.next() {
            let len = crate::base64_text::decode(text, &mut buffer)
                .map_err(|at| MediaFault::Base64 { at: index * CHUNK + at })?;
            if chunks.peek().is_some() && len != CHUNK / 4 * 3 {
                // Padding before the end.
                return Err(MediaFault::Base64 { at: (index + 1) * CHUNK - 1 });
            }
            sink(buffer.get(..len).unwrap_or_default());
            total += u64::try_from(len).unwrap_or(u64::MAX);
        }
        if total > bytes_max {
            return Err(MediaFault::TooLarge { bytes: total, limit: bytes_max });
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::media_identity::media_id;

    fn uri(head: &str, payload: &str) -> DataUri {
        DataUri::parse(&Bytes::from(format!("{head},{payload}"))).unwrap()
    }

    #[test]
    fn reads_the_head_as_engines_do() {
        for (head, expected) in [
            ("data:image/png;base64", Ok("image/png")),
            ("DATA:image/jpeg;charset=x;base64", Ok("image/jpeg")),
            ("data:;base64", Ok("")),
            ("data:image/png", Err(MediaFault::NotBase64)),
            ("data:image/png;BASE64", Err(MediaFault::NotBase64)),
            ("data:image/png;base64;x", Err(MediaFault::NotBase64)),
        ] {
            let parsed = DataUri::parse(&Bytes::from(format!("{head},AAAA")));
            assert_eq!(parsed.as_ref().map(DataUri::media_type).map_err(|fault| *fault), expected, "{head}");
        }
        assert_eq!(DataUri::parse(&Bytes::from_static(b"data:x")), Err(MediaFault::NoComma));
    }

    #[test]
    fn refuses_what_is_no_payload() {
        let check = |payload: &str, limit: u64, fault: MediaFault| {
            let uri = uri("data:image/png;base64", payload);
            assert_eq!(uri.decode(limit).unwrap_err(), fault);
            assert_eq!(uri.identify(limit, |_| 16).unwrap_err(), fault);
        };
        check("", 100, MediaFault::Empty);
        check("AAA!", 100, MediaFault::Base64 { at: 3 });
        check("AAAAA", 100, MediaFault::Base64 { at: 4 });
        check("AAAA", 2, MediaFault::TooLarge { bytes: 3, limit: 2 });
        check(&"A".repeat(400), 200, MediaFault::TooLarge { bytes: 300, limit: 200 });
        let text = "A".repeat(CHUNK);
        check(&format!("{text}AA!A"), 1 << 20, MediaFault::Base64 { at: CHUNK + 2 });
        let padded = format!("{}A=AAAA", "A".repeat(CHUNK - 2));
        assert!(matches!(uri("data:;base64", &padded).decode(1 << 20), Err(MediaFault::Base64 { .. })));
        let padded = format!("{}AA==AAAA", "A".repeat(CHUNK - 4));
        check(&padded, 1 << 20, MediaFault::Base64 { at: CHUNK - 1 });
    }

    proptest! {
        #[test]
        fn identifies_the_decoded_bytes(
            len in 1_usize..200_000,
            seed in any::<u8>(),
            keep in prop::sample::select(vec![0_usize, 1, 100, 50_000, 1 << 20]),
        ) {
            let bytes: Vec<u8> = (0..len).map(|index| seed.wrapping_mul(31).wrapping_add(u8::try_from(index % 251).unwrap())).collect();
            let uri = uri("data:;base64", &STANDARD.encode(&bytes));
            let spelt = DataUri::parse(&DataUri::spell("", &bytes));
            prop_assert_eq!(spelt.as_ref(), Ok(&uri));
            let mut first = Vec::new();
            let told = |chunk: &[u8]| {
                first.extend_from_slice(chunk);
                keep
            };
            let found = uri.identify(u64::MAX, told).unwrap();
            prop_assert_eq!(&first[..], &bytes[..len.min(CHUNK / 4 * 3)]);
            prop_assert_eq!(&found.prefix[..], &bytes[..keep.min(len)]);
            prop_assert_eq!((found.id, found.bytes), (media_id(&bytes), bytes.len() as u64));
            let prefix = uri.prefix(keep).unwrap();
            prop_assert_eq!(&prefix[..], &bytes[..prefix.len()]);
            prop_assert!(prefix.len() >= keep.min(len));
            prop_assert_eq!(uri.decode(len as u64).unwrap(), bytes);
        }
    }
}
