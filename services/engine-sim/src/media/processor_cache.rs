//! What the engine remembers of images it has preprocessed, so that an identity without data still works.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use media_geometry::ImageSize;

/// Image sizes by identity, least recently used out first.
#[derive(Debug)]
pub(crate) struct ProcessorCache {
    items_max: usize,
    clock: u64,
    entries: HashMap<Arc<str>, (ImageSize, u64)>,
    by_use: BTreeMap<u64, Arc<str>>,
    /// Look-ups since the start.
    pub(crate) queries: u64,
    /// Of these, the successful ones.
    pub(crate) hits: u64,
}

impl ProcessorCache {
    /// Creates an empty cache.
    pub(crate) fn new(items_max: usize) -> Self {
        Self { items_max, clock: 0, entries: HashMap::new(), by_use: BTreeMap::new(), queries: 0, hits: 0 }
    }

    /// Finds an image and makes it the most recently used.
    pub(crate) fn get(&mut self, identity: &str) -> Option<(Arc<str>, ImageSize)> {
        self.queries += 1;
        self.clock += 1;
        let (name, _) = self.entries.get_key_value(identity)?;
        let name = Arc::clone(name);
        let (size, used) = self.entries.get_mut(identity)?;
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, Arc::clone(&name));
        self.hits += 1;
        Some((name, *size))
    }

    /// Remembers an image.
    pub(crate) fn insert(&mut self, identity: &Arc<str>, size: ImageSize) {
        self.clock += 1;
        if let Some((_, used)) = self.entries.insert(Arc::clone(identity), (size, self.clock)) {
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.clock, Arc::clone(identity));
        if self.entries.len() > self.items_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.by_use.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_image_goes_first() {
        let mut cache = ProcessorCache::new(2);
        let size = ImageSize { width: 3, height: 4 };
        for name in ["a", "b"] {
            cache.insert(&name.into(), size);
        }
        assert!(cache.get("a").is_some());
        cache.insert(&"c".into(), size);
        assert!(cache.get("b").is_none());
        assert_eq!(cache.get("a").map(|(_, size)| size), Some(size));
        assert_eq!((cache.queries, cache.hits, cache.entries.len(), cache.by_use.len()), (3, 2, 2, 2));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// What routers believe of a worker's media, told how many it holds, is what the engine has.
        #[test]
        fn residency_follows_the_engine(
            items_max in 1_usize..6,
            images in proptest::collection::vec(0_u8..12, 1..200),
        ) {
            use identity::{Holder, MediaKey, Rank, WorkerId};
            use placement::{Query, Residency, ResidencyLimits};
            let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(0) };
            let (mut cache, mut residency) = (ProcessorCache::new(items_max), Residency::default());
            let now = std::time::Duration::ZERO;
            residency.limit(&holder, ResidencyLimits { items_max, ..ResidencyLimits::default() });
            for image in images {
                let id = image.to_string();
                let multiset = [(MediaKey::of(&id), 1)];
                let query = Query { multiset: &multiset, payload_free: &[] };
                let believed = residency.near(&holder, query, now).items == 1;
                let had = cache.get(&id).is_some();
                proptest::prop_assert_eq!(believed, had);
                if !had {
                    cache.insert(&id.as_str().into(), ImageSize { width: 3, height: 4 });
                }
                residency.see(&holder, MediaKey::of(&id), now);
            }
        }
    }
}
