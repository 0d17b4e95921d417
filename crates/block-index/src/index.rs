//! The writer's handle.

use std::collections::VecDeque;
use std::sync::Arc;

use identity::{BlockKey, KeySetDigest};

use crate::head_table::{Fill, HeadTable};
use crate::key_table::KeyTable;
use crate::limbo::{Garbage, Limbo, Memory};
use crate::limits::{HolderId, Limits, Refused};
use crate::members::HOLDERS_MAX;
use crate::reader::Reader;
use crate::runs::{self, Header, RunId, Runs};
use crate::shared::{Estate, Shared};
use crate::slots::{NONE, Slot, Slots};
use crate::stats::Counts;
use crate::sync::{Ordering, own_u64};

/// Pieces of garbage between two attempts to free.
const RECLAIM_EVERY: usize = if cfg!(loom) { 1 } else { 64 };

/// Largest `blocks_max`: with every run shorter than a page, slots still fit into 32 bits.
const BLOCKS_MAX: u32 = 1 << 28;

/// Run numbers kept for splits when stores are refused already.
pub(crate) const RUNS_SPARE: u32 = if cfg!(loom) { 8 } else { 2_048 };

/// The block index of one model: which holder has which prefix. The single writer.
///
/// Changes take effect for readers one block at a time, in an order that keeps every holder's set prefix-closed: a store
/// becomes visible at once, a removal from the last block to the first.
#[derive(Debug)]
pub struct Index {
    pub(crate) shared: Arc<Shared>,
    pub(crate) limits: Limits,
    pub(crate) slots: Slots,
    pub(crate) runs: Runs,
    pub(crate) table: KeyTable,
    pub(crate) fill: Fill,
    pub(crate) roots: RunId,
    pub(crate) holders: Vec<Held>,
    pub(crate) free_ids: VecDeque<HolderId>,
    pub(crate) leaving: VecDeque<HolderId>,
    pub(crate) limbo: Limbo,
    /// Stamps below it are past their grace.
    pub(crate) safe: u64,
    /// Blocks that some holder has.
    pub(crate) alive: u32,
    pub(crate) counts: Counts,
    /// Runs that a store passes, with the cutoff to give them.
    pub(crate) path: Vec<(RunId, u32)>,
}

/// What the writer knows of a holder.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) state: State,
    pub(crate) digest: KeySetDigest,
    pub(crate) blocks: u64,
    /// Runs it is in; also runs it has left since the list was last cleaned.
    pub(crate) runs: Vec<RunId>,
    pub(crate) left: usize,
    /// Where its last store ended; a guess.
    pub(crate) last: Slot,
}

/// Where a holder id is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Free,
    Present,
    /// Removed in the epoch of the stamp; its blocks wait for the sweep.
    Leaving {
        stamp: u64,
    },
}

/// Makes an empty index: the writer's handle and a first reader.
///
/// Limits above 2²⁸ blocks or 2¹⁹ − 1 holders are lowered to that.
#[must_use]
pub fn new(limits: Limits) -> (Index, Reader) {
    let limits = Limits {
        holders_max: limits.holders_max.min(HOLDERS_MAX),
        blocks_max: limits.blocks_max.min(BLOCKS_MAX),
    };
    let shared = Arc::new(Shared::new(limits, runs_max(limits.blocks_max)));
    let reader = Reader::new(Arc::clone(&shared));
    let slots = Slots::new(Arc::clone(&shared.keys));
    let index = Index {
        shared,
        limits,
        slots,
        runs: Runs::new(),
        table: KeyTable::new(),
        fill: Fill::default(),
        roots: NONE,
        holders: Vec::new(),
        free_ids: VecDeque::new(),
        leaving: VecDeque::new(),
        limbo: Limbo::default(),
        safe: 0,
        alive: 0,
        counts: Counts::default(),
        path: Vec::new(),
    };
    (index, reader)
}

/// Returns how many runs may be numbered: one per block, an eighth more for those in limbo, and some to spare.
pub(crate) const fn runs_max(blocks_max: u32) -> u32 {
    blocks_max + blocks_max / 8 + 2 * RUNS_SPARE
}

impl Index {
    /// Returns another reader.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Returns the limits in force.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Admits a holder without blocks.
    ///
    /// # Errors
    /// [`Refused::Holders`]: all ids are taken, or wait for [`Index::sweep`]. Try again after the sweep, or go without
    /// this holder.
    pub fn add_holder(&mut self) -> Result<HolderId, Refused> {
        let id = self.free_ids.pop_front().or_else(|| {
            let next = u32::try_from(self.holders.len()).ok()?;
            (next < self.limits.holders_max).then(|| {
                self.holders.push(Held::default());
                HolderId(next)
            })
        });
        let Some(id) = id else {
            self.counts.refused_holders += 1;
            return Err(Refused::Holders { holders_max: self.limits.holders_max });
        };
        if let Some(held) = self.holders.get_mut(id.index()) {
            *held = Held { state: State::Present, last: NONE, ..Held::default() };
        }
        let words = self.holders.len().div_ceil(64) as u64;
        self.shared.words.store(words, Ordering::Release);
        self.set_active(id, true);
        Ok(id)
    }

    /// Returns the digest of a present holder's keys.
    #[must_use]
    pub fn digest(&self, holder: HolderId) -> Option<&KeySetDigest> {
        self.held(holder).map(|held| &held.digest)
    }

    /// Counts a holder's blocks; 0 if it is not present.
    #[must_use]
    pub fn blocks(&self, holder: HolderId) -> u64 {
        self.held(holder).map_or(0, |held| held.blocks)
    }

    /// Lists the present holders, by id.
    pub fn holders(&self) -> impl Iterator<Item = HolderId> + '_ {
        let all = (0..).zip(&self.holders);
        all.filter(|(_, held)| held.state == State::Present).map(|(id, _)| HolderId(id))
    }

    /// Tells whether a holder has a block.
    #[must_use]
    pub fn holds(&self, holder: HolderId, key: BlockKey) -> bool {
        self.held(holder).is_some()
            && self.table.find(key, &self.slots).is_some_and(|slot| self.has_slot(holder, slot))
    }

    pub(crate) fn has_slot(&self, holder: HolderId, slot: Slot) -> bool {
        let run = self.slots.owner(slot);
        self.runs.get(run).is_some_and(|meta| self.cutoff(run, holder) > slot - meta.start)
    }

    pub(crate) fn held(&self, holder: HolderId) -> Option<&Held> {
        self.holders.get(holder.index()).filter(|held| held.state == State::Present)
    }

    pub(crate) fn header(&self, run: RunId) -> Option<&Header> {
        runs::header(&self.shared.directory, run)
    }

    pub(crate) fn set_active(&self, holder: HolderId, on: bool) {
        if let Some(word) = self.shared.active.get(holder.index() / 64) {
            let mask = 1 << (holder.0 % 64);
            let old = own_u64(word);
            word.store(if on { old | mask } else { old & !mask }, Ordering::Release);
        }
    }

    /// Publishes a run under its first key.
    pub(crate) fn publish_head(&mut self, key: BlockKey, run: RunId) {
        if self.shared.heads().is_full(self.fill) {
            self.rebuild_heads();
        }
        if self.shared.heads().insert(key, run) {
            self.fill.dead -= 1;
        }
        self.fill.live += 1;
        if let Some(parent) = self.runs.get(run).map(|meta| meta.parent).filter(|parent| *parent != NONE) {
            self.guess_next(self.slots.owner(parent));
        }
    }

    /// Tells readers in a run which run follows, if there is but one.
    pub(crate) fn guess_next(&self, run: RunId) {
        let (Some(header), Some(meta)) = (self.header(run), self.runs.get(run)) else { return };
        let only = self.runs.get(meta.child).filter(|child| child.next == NONE).map(|_| meta.child);
        header.next.store(only.map_or(0, |child| child + 1), Ordering::Release);
    }

    /// Hides a run from readers that are not in it.
    pub(crate) fn hide_head(&mut self, key: BlockKey, run: RunId) {
        if self.shared.heads().remove(key, run) {
            self.fill.live -= 1;
            self.fill.dead += 1;
        }
    }

    /// Replaces the head table by a fresh one of fitting size.
    #[expect(unsafe_code, reason = "retires what was published by pointer")]
    pub(crate) fn rebuild_heads(&mut self) {
        let fresh: HeadTable = self.shared.heads().rebuilt(self.fill);
        self.fill.dead = 0;
        let old = self.shared.heads.swap(Box::into_raw(Box::new(fresh)), Ordering::AcqRel);
        // SAFETY: `old` was made by `Box::into_raw`, is no longer published, and waits in limbo for its grace.
        let memory = unsafe { Memory::retired(old) };
        self.retire(Garbage::Heads { _memory: memory });
    }

    /// Puts something unlinked into limbo.
    pub(crate) fn retire(&mut self, garbage: Garbage) {
        self.limbo.push(self.shared.epochs.stamp(), garbage);
        if self.limbo.len().is_multiple_of(RECLAIM_EVERY) {
            self.reclaim();
        }
    }

    /// Frees what no reader can reach any more.
    pub(crate) fn reclaim(&mut self) {
        self.safe = self.shared.epochs.advance();
        while let Some(garbage) = self.limbo.pop_below(self.safe) {
            match garbage {
                Garbage::Slots { start, len } => self.slots.free(start, len),
                Garbage::Run(run) => self.runs.free(&self.shared.directory, run),
                Garbage::Holder(holder) => {
                    if let Some(held) = self.holders.get_mut(holder.index()) {
                        held.state = State::Free;
                    }
                    self.free_ids.push_back(holder);
                }
                Garbage::Many { .. } | Garbage::Heads { .. } => {}
            }
        }
    }
}

impl Drop for Index {
    /// Leaves the memory to the last reader: readers go on answering from the last state.
    fn drop(&mut self) {
        let estate = Estate {
            _slots: std::mem::replace(&mut self.slots, Slots::new(Arc::clone(&self.shared.keys))),
            _runs: std::mem::replace(&mut self.runs, Runs::new()),
            _limbo: std::mem::take(&mut self.limbo),
        };
        // The index is the only one to set it, once; were it set, dropping the rest here would be wrong, so it is kept.
        if let Err(estate) = self.shared.estate.set(estate) {
            std::mem::forget(estate);
        }
    }
}
