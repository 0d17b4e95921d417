//! Tokens of text segments seen before.

use std::sync::Arc;

use moka::sync::Cache;
use xxhash_rust::xxh3::Xxh3Builder;

/// What an entry costs beside its text and tokens, in bytes.
const ENTRY_OVERHEAD: usize = 160;

/// Longer segments are not kept: one of them would displace thousands.
const SEGMENT_BYTES_MAX: usize = 1 << 20;

/// A bounded map from text to its tokens, shared by all threads.
///
/// Whole texts are the keys: two texts never share an entry.
#[derive(Clone)]
pub(crate) struct SegmentCache {
    entries: Cache<Arc<str>, Arc<[u32]>, Xxh3Builder>,
}

impl SegmentCache {
    /// Creates a cache of at most so many bytes, keys and overhead counted.
    pub(crate) fn new(bytes_max: u64, seed: u64) -> Self {
        let weigh = |text: &Arc<str>, tokens: &Arc<[u32]>| {
            u32::try_from(text.len() + tokens.len() * 4 + ENTRY_OVERHEAD).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(weigh)
            .build_with_hasher(Xxh3Builder::new().with_seed(seed));
        Self { entries }
    }

    pub(crate) fn get(&self, text: &str) -> Option<Arc<[u32]>> {
        self.entries.get(text)
    }

    pub(crate) fn put(&self, text: &str, tokens: &[u32]) {
        if text.len() <= SEGMENT_BYTES_MAX {
            self.entries.insert(Arc::from(text), Arc::from(tokens));
        }
    }

    /// Returns how many bytes the entries weigh; lags behind by what is being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.weighted_size()
    }
}

impl std::fmt::Debug for SegmentCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
