//! Which media items' encoder outputs are at hand, bounded in tokens, least recently used out first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug)]
struct Entry {
    tokens: u32,
    used: u64,
}

/// Encoder outputs by media identity.
#[derive(Debug)]
pub(crate) struct EncoderCache {
    tokens_max: u32,
    tokens: u32,
    clock: u64,
    entries: HashMap<Arc<str>, Entry>,
    by_use: BTreeMap<u64, Arc<str>>,
}

impl EncoderCache {
    /// Creates an empty cache for at most this many media tokens.
    #[must_use]
    pub(crate) fn new(tokens_max: u32) -> Self {
        Self { tokens_max, tokens: 0, clock: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Makes an item the most recently used; returns whether it has to be encoded.
    /// An item larger than the whole cache is never kept.
    pub(crate) fn insert(&mut self, identity: &Arc<str>, tokens: u32) -> bool {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(identity) {
            self.by_use.remove(&entry.used);
            entry.used = self.clock;
            self.by_use.insert(self.clock, Arc::clone(identity));
            return false;
        }
        if tokens <= self.tokens_max {
            self.make_room(tokens);
            self.tokens += tokens;
            self.entries.insert(Arc::clone(identity), Entry { tokens, used: self.clock });
            self.by_use.insert(self.clock, Arc::clone(identity));
        }
        true
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.tokens = 0;
        self.entries.clear();
        self.by_use.clear();
    }

    fn make_room(&mut self, tokens: u32) {
        while self.tokens_max - self.tokens < tokens {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.tokens -= entry.tokens;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_encoded_once_until_it_is_pushed_out() {
        let mut cache = EncoderCache::new(10);
        let id = |name: &str| Arc::<str>::from(name);
        let wanted = [
            ("a", 4, true),
            ("b", 4, true),
            ("a", 4, false),
            ("c", 4, true),
            ("a", 4, false),
            ("b", 4, true),
            ("x", 11, true),
            ("x", 11, true),
        ];
        for (step, (name, tokens, encoded)) in wanted.into_iter().enumerate() {
            assert_eq!(cache.insert(&id(name), tokens), encoded, "step {step}");
            assert!(cache.tokens <= 10);
            assert_eq!(cache.entries.len(), cache.by_use.len());
        }
        cache.clear();
        assert!(cache.insert(&id("a"), 4));
    }
}
