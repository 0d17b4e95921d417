//! What is in an index, in numbers.

use crate::index::Index;
use crate::sync::Ordering;

/// Sizes and counters of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Present holders.
    pub holders: u32,
    /// Distinct blocks that some holder has.
    pub blocks: u32,
    /// Blocks without holders, kept for a while in case they are stored again; they count against `blocks_max`.
    pub blocks_kept: u32,
    /// Pairs of a holder and a block it has.
    pub memberships: u64,
    /// Runs in use.
    pub runs: u32,
    /// Bytes allocated.
    pub bytes: u64,
    /// Pieces of memory that wait for readers to leave.
    pub limbo: u64,
    /// Since the start: runs split, and runs merged again.
    pub splits: u64,
    /// Since the start: runs merged.
    pub merges: u64,
    /// Since the start: stores refused because a key had another parent.
    pub second_parents: u64,
    /// Since the start: stores refused because the holder lacked the parent.
    pub refused_parents: u64,
    /// Since the start: stores refused because the index was full.
    pub refused_blocks: u64,
    /// Since the start: holders refused.
    pub refused_holders: u64,
    /// Since the start: how often a reader took in a run again because it was being reshaped.
    pub retries: u64,
}

/// What the writer counts as it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) memberships: u64,
    pub(crate) many_bytes: u64,
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    pub(crate) second_parents: u64,
    pub(crate) refused_parents: u64,
    pub(crate) refused_blocks: u64,
    pub(crate) refused_holders: u64,
}

impl Index {
    /// Measures the index. The cost is linear in its holders and in its chunks of memory, not in its blocks.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            holders: u32::try_from(self.holders().count()).unwrap_or(u32::MAX),
            blocks: self.alive,
            blocks_kept: self.table.len() - self.alive,
            memberships: self.counts.memberships,
            runs: self.runs.count(),
            bytes: self.bytes(),
            limbo: self.limbo.len() as u64,
            splits: self.counts.splits,
            merges: self.counts.merges,
            second_parents: self.counts.second_parents,
            refused_parents: self.counts.refused_parents,
            refused_blocks: self.counts.refused_blocks,
            refused_holders: self.counts.refused_holders,
            retries: self.shared.retries.load(Ordering::Relaxed),
        }
    }

    fn bytes(&self) -> u64 {
        let digest = (identity::BUCKETS * size_of::<identity::Bucket>()) as u64;
        let lists: u64 = self.holders.iter().map(|held| held.runs.capacity() as u64 * 4 + digest).sum();
        let tables = self.table.bytes() + self.shared.heads().bytes();
        let fixed = (self.shared.directory.len() + self.shared.active.len()) as u64 * 8;
        self.slots.bytes() + self.runs.bytes() + self.counts.many_bytes + tables + lists + fixed
    }
}
