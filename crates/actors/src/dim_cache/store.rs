//! Fetched bytes by media id, and where they came from.

use std::sync::Arc;

use bytes::Bytes;
use identity::MediaId;
use moka::future::Cache;
use moka::policy::EvictionPolicy;

/// An item's bytes, as its origin sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The bytes.
    pub bytes: Bytes,
    /// What they are, such as `image/png`: found from the bytes, else as the origin says.
    pub media_type: Arc<str>,
}

/// Bytes while there is room for them, and for longer the URLs they can be had from again.
#[derive(Debug)]
pub(super) struct Store {
    items: Cache<MediaId, Stored>,
    origins: Cache<MediaId, Arc<str>>,
}

/// Bytes of URLs kept.
const ORIGIN_BYTES_MAX: u64 = 32 << 20;
/// What an entry costs besides its content, in bytes.
const ENTRY_BYTES: usize = 128;

impl Store {
    pub(super) fn new(bytes_max: u64) -> Self {
        let weight = |bytes: usize| u32::try_from(bytes + ENTRY_BYTES).unwrap_or(u32::MAX);
        let items = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(move |_, stored: &Stored| weight(stored.bytes.len()))
            .eviction_policy(EvictionPolicy::lru())
            .build();
        let origins = Cache::builder()
            .max_capacity(ORIGIN_BYTES_MAX)
            .weigher(move |_, url: &Arc<str>| weight(url.len()))
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { items, origins }
    }

    pub(super) async fn get(&self, id: &MediaId) -> Option<Stored> {
        self.items.get(id).await
    }

    pub(super) async fn keep(&self, id: &MediaId, stored: &Stored) {
        self.items.insert(id.clone(), stored.clone()).await;
    }

    /// Remembers the URL by which an item was last had.
    pub(super) async fn came_from(&self, id: &MediaId, url: &str) {
        self.origins.insert(id.clone(), Arc::from(url)).await;
    }

    pub(super) async fn origin(&self, id: &MediaId) -> Option<Arc<str>> {
        self.origins.get(id).await
    }

    pub(super) fn bytes(&self) -> u64 {
        self.items.weighted_size()
    }
}
