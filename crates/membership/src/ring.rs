//! The recent deltas that an agent keeps for replicas that missed some.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Delta;

/// Most deltas that a ring keeps by default.
pub const DELTAS_MAX: usize = 65_536;
/// Most memory that a ring's deltas take by default, in bytes.
pub const BYTES_MAX: usize = 64 << 20;

/// Consecutive deltas of one incarnation, the oldest forgotten first.
#[derive(Clone, Debug)]
pub struct Ring {
    deltas: VecDeque<(Arc<Delta>, usize)>,
    bytes: usize,
    deltas_max: usize,
    bytes_max: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Self::new(DELTAS_MAX, BYTES_MAX)
    }
}

impl Ring {
    /// Makes an empty ring with its bounds.
    #[must_use]
    pub const fn new(deltas_max: usize, bytes_max: usize) -> Self {
        Self { deltas: VecDeque::new(), bytes: 0, deltas_max, bytes_max }
    }

    /// Appends the next delta; one that does not follow the last forgets all before it.
    pub fn push(&mut self, delta: Arc<Delta>) {
        let follows = self.deltas.back().is_none_or(|(last, _)| {
            last.incarnation == delta.incarnation && last.seq.checked_add(1) == Some(delta.seq)
        });
        if !follows {
            self.clear();
        }
        let bytes = delta.bytes();
        self.bytes += bytes;
        self.deltas.push_back((delta, bytes));
        while self.deltas.len() > self.deltas_max || (self.bytes > self.bytes_max && self.deltas.len() > 1) {
            let Some((_, bytes)) = self.deltas.pop_front() else { break };
            self.bytes -= bytes;
        }
    }

    /// Forgets everything, as at a new incarnation.
    pub fn clear(&mut self) {
        self.deltas.clear();
        self.bytes = 0;
    }

    /// Returns the deltas from sequence `from` on, in order; none where `from` is forgotten or not yet there.
    #[must_use]
    pub fn from(&self, from: u64) -> Option<impl Iterator<Item = &Arc<Delta>>> {
        let oldest = self.deltas.front()?.0.seq;
        let skip = usize::try_from(from.checked_sub(oldest)?).ok()?;
        (skip < self.deltas.len()).then(|| self.deltas.iter().skip(skip).map(|(delta, _)| delta))
    }

    /// Returns the oldest sequence kept.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.deltas.front().map(|(delta, _)| delta.seq)
    }

    /// Returns the memory that the deltas take, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use identity::{BlockKey, Incarnation, ModelName, Rank, WorkerId};

    use super::*;
    use crate::Change;

    fn delta(seq: u64, started_ms: u64) -> Arc<Delta> {
        Arc::new(Delta {
            scheme: identity::SCHEME.to_owned(),
            model: ModelName::new("m"),
            worker: WorkerId::new("w"),
            rank: Rank(0),
            incarnation: Incarnation { started_ms, nonce: 0 },
            seq,
            changes: vec![Change::Removed { keys: vec![BlockKey::new(seq)] }],
        })
    }

    fn check(ring: &Ring, from: u64, expected: Option<&[u64]>) {
        let seqs = ring.from(from).map(|deltas| deltas.map(|delta| delta.seq).collect::<Vec<_>>());
        assert_eq!(seqs.as_deref(), expected, "from {from}");
    }

    #[test]
    fn the_oldest_go_first() {
        let mut ring = Ring::new(3, usize::MAX);
        check(&ring, 1, None);
        (1..=5).for_each(|seq| ring.push(delta(seq, 1)));
        check(&ring, 2, None);
        check(&ring, 3, Some(&[3, 4, 5]));
        check(&ring, 5, Some(&[5]));
        check(&ring, 6, None);
    }

    #[test]
    fn bytes_are_bounded_but_one_delta_stays() {
        let bytes = delta(1, 1).bytes();
        let mut ring = Ring::new(100, 2 * bytes);
        (1..=5).for_each(|seq| ring.push(delta(seq, 1)));
        assert_eq!((ring.bytes(), ring.oldest()), (2 * bytes, Some(4)));
        let mut tight = Ring::new(100, 1);
        (1..=2).for_each(|seq| tight.push(delta(seq, 1)));
        check(&tight, 2, Some(&[2]));
    }

    #[test]
    fn a_jump_or_a_new_life_forgets() {
        let mut ring = Ring::default();
        [1, 2, 9].into_iter().for_each(|seq| ring.push(delta(seq, 1)));
        check(&ring, 9, Some(&[9]));
        check(&ring, 2, None);
        ring.push(delta(10, 2));
        check(&ring, 9, None);
    }
}
