//! Holders go out, and memory is given back.

use identity::KeySetDigest;

use crate::index::{Index, State};
use crate::limbo::Garbage;
use crate::limits::HolderId;
use crate::runs::RunId;
use crate::sync::prefetch;

/// How far ahead of the sweep a run is asked for.
const AHEAD: usize = 8;

impl Index {
    /// Removes a holder: at once for readers, its memory and its id with [`Index::sweep`].
    pub fn remove_holder(&mut self, holder: HolderId) {
        if self.held(holder).is_none() {
            return;
        }
        self.set_active(holder, false);
        let stamp = self.shared.epochs.stamp();
        let Some(held) = self.holders.get_mut(holder.index()) else { return };
        held.state = State::Leaving { stamp };
        self.counts.memberships -= held.blocks;
        held.blocks = 0;
        held.digest = KeySetDigest::default();
        self.leaving.push_back(holder);
    }

    /// Does up to `budget` runs' worth of background work, and tells whether there is more.
    ///
    /// Work waits for readers that began before it was due; those last microseconds, so ask again a little later.
    pub fn sweep(&mut self, budget: usize) -> bool {
        self.reclaim();
        let mut left = budget;
        while left > 0
            && let Some(holder) = self.leaving.front().copied()
        {
            if !self.sweep_holder(holder, &mut left) {
                break;
            }
        }
        while left > 0
            && let Some(run) = self.runs.to_trim.pop_front()
        {
            self.trim(run);
            left -= 1;
        }
        self.reclaim();
        if left > 0 {
            self.shrink();
        }
        !self.leaving.is_empty() || !self.runs.to_trim.is_empty() || self.limbo.len() > 0
    }

    /// Takes a leaving holder out of its runs; false if readers may still count on it.
    fn sweep_holder(&mut self, holder: HolderId, left: &mut usize) -> bool {
        let Some(held) = self.holders.get_mut(holder.index()) else { return false };
        if !matches!(held.state, State::Leaving { stamp } if stamp < self.safe) {
            return false;
        }
        let mut runs = std::mem::take(&mut held.runs);
        while *left > 0
            && let Some(run) = runs.pop()
        {
            let ahead = runs.len().checked_sub(AHEAD).and_then(|at| runs.get(at));
            if let Some(header) = ahead.and_then(|run| self.header(*run)) {
                prefetch(header);
            }
            self.leave(run, holder);
            *left -= 1;
        }
        let Some(held) = self.holders.get_mut(holder.index()) else { return false };
        // Merges and splits meanwhile may have entered others.
        runs.append(&mut held.runs);
        held.runs = runs;
        if held.runs.is_empty() {
            held.runs = Vec::new();
            self.leaving.pop_front();
            self.retire(Garbage::Holder(holder));
        }
        true
    }

    /// Takes a holder that readers no longer see out of one run.
    fn leave(&mut self, run: RunId, holder: HolderId) {
        let had = self.cutoff(run, holder);
        if had == 0 {
            return;
        }
        self.put(run, holder, had, 0);
        self.settle(run);
        if self.counts.splits > self.counts.merges {
            self.try_merge(run);
        }
        self.try_few(run);
    }

    /// Makes tables fit what is in them.
    fn shrink(&mut self) {
        self.table.shrink(&self.slots);
        if self.shared.heads().is_sparse(self.fill) {
            self.rebuild_heads();
            self.reclaim();
        }
        self.slots.shrink();
        self.runs.to_trim.shrink_to(self.runs.to_trim.len() * 2);
    }
}
