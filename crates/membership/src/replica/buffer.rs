//! Deltas that wait for their turn.

use std::collections::BTreeMap;

use crate::{Change, Delta};

/// A bounded set of deltas of one life, by sequence.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    deltas: BTreeMap<u64, (Vec<Change>, usize)>,
    bytes: usize,
    deltas_max: usize,
    bytes_max: usize,
}

impl Buffer {
    pub(crate) const fn new(deltas_max: usize, bytes_max: usize) -> Self {
        Self { deltas: BTreeMap::new(), bytes: 0, deltas_max, bytes_max }
    }

    /// Keeps a delta; where there is no room, the latest give way, as they are the last to be needed.
    pub(crate) fn insert(&mut self, delta: Delta) {
        let bytes = delta.bytes();
        if self.deltas.contains_key(&delta.seq) {
            return;
        }
        self.deltas.insert(delta.seq, (delta.changes, bytes));
        self.bytes += bytes;
        while self.deltas.len() > self.deltas_max || self.bytes > self.bytes_max {
            let Some((_, (_, bytes))) = self.deltas.pop_last() else { return };
            self.bytes -= bytes;
        }
    }

    /// Takes a delta by its sequence.
    pub(crate) fn take(&mut self, seq: u64) -> Option<Vec<Change>> {
        let (changes, bytes) = self.deltas.remove(&seq)?;
        self.bytes -= bytes;
        Some(changes)
    }

    /// Drops the deltas up to a sequence.
    pub(crate) fn forget_through(&mut self, seq: u64) {
        while let Some(first) = self.deltas.first_entry()
            && *first.key() <= seq
        {
            let (_, bytes) = first.remove();
            self.bytes -= bytes;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deltas.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.deltas.clear();
        self.bytes = 0;
    }
}
