//! A bounded map that forgets what was not used for longest, by halves.

use std::collections::HashMap;
use std::hash::Hash;

/// At most `entries_max` entries: once the young half is full, it becomes the old one, and what is old is forgotten.
#[derive(Clone, Debug)]
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Copy + Eq + Hash, V: Copy + Default> Recent<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (entries_max / 2).max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Looks without using.
    pub(super) fn peek(&self, key: K) -> Option<V> {
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    /// Looks; what is found counts as used.
    pub(super) fn get(&mut self, key: K) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(*value);
        }
        let value = self.old.get(&key).copied()?;
        self.put(key, value);
        Some(value)
    }

    /// Changes a value, the default one if there is none. Answers whether it is another now.
    pub(super) fn update(&mut self, key: K, change: impl FnOnce(V) -> V) -> bool
    where
        V: PartialEq,
    {
        let before = self.peek(key).unwrap_or_default();
        let after = change(before);
        self.put(key, after);
        before != after
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::new(8);
        recent.put(0, 0);
        for key in 1..100 {
            recent.put(key, key);
            assert!(recent.len() <= 8);
            assert_eq!(recent.get(0), Some(0), "at {key}");
        }
        assert_eq!((recent.peek(99), recent.peek(50)), (Some(99), None));
    }
}
