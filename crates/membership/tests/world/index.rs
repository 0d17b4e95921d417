//! What a replica's index has of the holder, and what may never happen to it.

use identity::{Incarnation, KeySetDigest};
use membership::replica::Op;
use membership::{Change, Run};

use super::{Keys, digest_of};

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) life: Option<Incarnation>,
    pub(crate) seq: u64,
    pub(crate) keys: Keys,
}

impl Index {
    pub(crate) fn apply(&mut self, op: Op) -> Option<(u32, KeySetDigest)> {
        match op {
            Op::Begin { incarnation } => {
                assert!(self.life.is_none_or(|life| life <= incarnation), "{incarnation} resurrected");
                if self.life != Some(incarnation) {
                    self.keys.clear();
                }
                self.life = Some(incarnation);
            }
            Op::Apply { seq, changes } => {
                self.seq = seq;
                changes.into_iter().for_each(|change| self.change(change));
            }
            Op::ReplaceBuckets { seq, buckets, runs } => {
                self.seq = seq;
                self.keys.retain(|key, _| !buckets.contains(&KeySetDigest::bucket_of(*key)));
                self.insert(runs);
                self.assert_closed();
            }
            Op::Replace { seq, runs } => {
                self.seq = seq;
                self.keys.clear();
                self.insert(runs);
                self.assert_closed();
            }
            Op::Check { ticket } => return Some((ticket, digest_of(&self.keys))),
            Op::End => self.keys.clear(),
        }
        None
    }

    fn insert(&mut self, runs: Vec<Run>) {
        for run in runs {
            let mut parent = run.parent;
            for key in run.keys {
                self.keys.insert(key, parent);
                parent = Some(key);
            }
        }
    }

    /// Applies a change as the real index does: nothing is stored below a parent that is missing.
    fn change(&mut self, change: Change) {
        match change {
            Change::Stored { parent, keys, .. } => {
                if parent.is_none_or(|parent| self.keys.contains_key(&parent)) {
                    self.insert(vec![Run { parent, keys }]);
                }
            }
            Change::Removed { keys } => self.keys.retain(|key, _| !keys.contains(key)),
            Change::Cleared => self.keys.clear(),
        }
    }

    fn assert_closed(&self) {
        for parent in self.keys.values().flatten() {
            assert!(self.keys.contains_key(parent), "{parent} is missing below its children");
        }
    }
}
