//! How a media item is named.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// The string by which an engine knows a media item (vLLM: `uuid`, else its own hash).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaId(Arc<str>);

impl MediaId {
    /// Wraps an identifier as the engine spells it.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(Arc::from(id))
    }

    /// Returns the identifier's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key under which the identifier enters block keys.
    #[must_use]
    pub fn key(&self) -> MediaKey {
        MediaKey::of(self.as_str())
    }
}

impl fmt::Debug for MediaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for MediaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// xxh3-64 (seed 0) of a media id's UTF-8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaKey(u64);

impl MediaKey {
    /// Hashes a media id.
    #[must_use]
    pub fn of(media_id: &str) -> Self {
        Self(xxh3_64(media_id.as_bytes()))
    }

    /// Wraps a raw key.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the raw key.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A media item's placeholder range in a prompt, in tokens, as the engine reports it in `extra_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MediaSpan {
    /// Names the item.
    pub key: MediaKey,
    /// Index of the range's first token in the prompt.
    pub start: u32,
    /// Length of the range, in tokens.
    pub len: u32,
}

impl MediaSpan {
    /// Index one past the range's last token.
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.start.saturating_add(self.len)
    }
}
