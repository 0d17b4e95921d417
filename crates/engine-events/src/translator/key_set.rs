//! The visible block keys with their parents, the digest over them, and what changed since a batch began.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use identity::{BUCKETS, BlockKey, KeySetDigest};
use membership::Run;

#[derive(Clone, Copy, Debug)]
struct Held {
    /// How many of the engine's blocks have this key.
    blocks: u32,
    parent: Option<BlockKey>,
    depth: u32,
}

/// A key of which the number of blocks went from or to 0 since the batch began.
#[derive(Clone, Copy, Debug)]
struct Touched {
    before: bool,
    depth: u32,
}

/// A multiset of keys, each behind its parent.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    held: HashMap<BlockKey, Held>,
    digest: KeySetDigest,
    touched: HashMap<BlockKey, Touched>,
}

impl KeySet {
    pub(super) const fn digest(&self) -> &KeySetDigest {
        &self.digest
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn show(&mut self, key: BlockKey, parent: Option<BlockKey>, depth: u32) {
        match self.held.entry(key) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                held.blocks = held.blocks.saturating_add(1);
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Held { blocks: 1, parent, depth });
                self.digest.add(key);
                self.touched.entry(key).or_insert(Touched { before: false, depth });
            }
        }
    }

    pub(super) fn hide(&mut self, key: BlockKey) {
        if let Entry::Occupied(mut held) = self.held.entry(key) {
            let (blocks, depth) = (held.get().blocks, held.get().depth);
            if blocks > 1 {
                held.get_mut().blocks = blocks - 1;
            } else {
                held.remove();
                self.digest.take(key);
                self.touched.entry(key).or_insert(Touched { before: true, depth });
            }
        }
    }

    /// Forgets all keys, and that there were any.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes what changed on balance: keys that are gone, children first, and keys that are new, parents first.
    pub(super) fn net(&mut self) -> (Vec<BlockKey>, Vec<Run>) {
        let mut gone = Vec::new();
        let mut new = Vec::new();
        for (key, touched) in std::mem::take(&mut self.touched) {
            match (touched.before, self.held.get(&key)) {
                (true, None) => gone.push((touched.depth, key)),
                (false, Some(held)) => new.push((held.depth, held.parent, key)),
                _ => {}
            }
        }
        gone.sort_unstable_by(|one, other| other.cmp(one));
        (gone.into_iter().map(|(_, key)| key).collect(), runs(new))
    }

    /// Takes the present keys as those a batch begins with.
    pub(super) fn settle(&mut self) {
        self.touched.clear();
    }

    /// Lists all keys as runs, parents first.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.copy().into_runs()
    }

    /// Lists the keys of some buckets as runs, parents first; a key whose child is elsewhere ends its run.
    pub(super) fn runs_in(&self, buckets: &[u8]) -> Vec<Run> {
        let mut wanted = [false; BUCKETS];
        for bucket in buckets {
            if let Some(wanted) = wanted.get_mut(usize::from(*bucket)) {
                *wanted = true;
            }
        }
        let is_wanted =
            |key: &BlockKey| wanted.get(usize::from(KeySetDigest::bucket_of(*key))).copied().unwrap_or(false);
        let keys = self.held.iter().filter(|(key, _)| is_wanted(key));
        runs(keys.map(|(key, held)| (held.depth, held.parent, *key)).collect())
    }

    pub(super) fn copy(&self) -> KeyCopy {
        KeyCopy(self.held.iter().map(|(key, held)| (held.depth, held.parent, *key)).collect())
    }
}

/// A copy of a set of keys, not yet in order.
#[derive(Debug)]
pub struct KeyCopy(Vec<(u32, Option<BlockKey>, BlockKey)>);

impl KeyCopy {
    /// Joins the keys to runs, parents first; takes time in proportion to their number.
    #[must_use]
    pub fn into_runs(self) -> Vec<Run> {
        runs(self.0)
    }
}

/// Joins keys to runs, a run never before the one it hangs on; the same keys give the same runs.
fn runs(mut keys: Vec<(u32, Option<BlockKey>, BlockKey)>) -> Vec<Run> {
    keys.sort_unstable();
    let mut heirs = HashMap::with_capacity(keys.len());
    for (_, parent, key) in &keys {
        if let Some(parent) = parent {
            heirs.entry(*parent).or_insert(*key);
        }
    }
    let mut done = HashSet::with_capacity(keys.len());
    let mut runs = Vec::new();
    for (_, parent, key) in keys {
        if done.contains(&key) {
            continue;
        }
        let mut run = Run { parent, keys: Vec::new() };
        let mut next = Some(key);
        while let Some(key) = next.filter(|key| done.insert(*key)) {
            run.keys.push(key);
            next = heirs.get(&key).copied();
        }
        runs.push(run);
    }
    runs
}
