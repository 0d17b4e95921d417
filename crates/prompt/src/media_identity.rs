//! The media id: a name bound to bytes.

use identity::MediaId;

/// Context of the key derivation; changing it renames every media item.
const CONTEXT: &str = "sightline media v1";

/// Computes the media id of some bytes: `blake3::derive_key("sightline media v1", bytes)` in hex, 64 digits.
#[must_use]
pub fn media_id(bytes: &[u8]) -> MediaId {
    let mut hasher = MediaHasher::new();
    hasher.update(bytes);
    hasher.finish()
}

/// Computes a media id from bytes that arrive in pieces.
#[derive(Clone, Debug)]
pub struct MediaHasher(blake3::Hasher);

impl MediaHasher {
    /// Starts on no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(blake3::Hasher::new_derive_key(CONTEXT))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Names the bytes added so far.
    #[must_use]
    pub fn finish(&self) -> MediaId {
        MediaId::new(&self.0.finalize().to_hex())
    }
}

impl Default for MediaHasher {
    fn default() -> Self {
        Self::new()
    }
}

/// What decoding a payload once has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The item's id.
    pub id: MediaId,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its first bytes, for the header probe.
    pub prefix: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_derived_by_blake3() {
        // Computed with the reference implementation's `derive_key_context`.
        let expected = "37441321067fd0eb2d7e784e55c2e5d9e52c7c0dc64928848ac5c3dd0d3e660f";
        assert_eq!(media_id(b"hello").as_str(), expected);
        let mut pieces = MediaHasher::new();
        pieces.update(b"hel");
        pieces.update(b"lo");
        assert_eq!(pieces.finish().as_str(), expected);
    }
}
