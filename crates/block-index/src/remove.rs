//! Blocks go out.

use identity::BlockKey;

use crate::index::Index;
use crate::limits::HolderId;
use crate::runs::RunId;
use crate::slots::{NONE, Slot};
use crate::sync::prefetch;

/// How far ahead of a removal its place in the table is asked for.
const AHEAD: usize = 8;

/// Blocks without holders that are kept for being stored again: these, and one for so many that have holders.
const KEPT: u32 = 1_024;
const KEPT_SHARE: u32 = 16;

impl Index {
    /// Takes blocks from a holder, and returns how many it lost.
    ///
    /// Keys come children-first, as the agent delivers them. A key whose descendants the holder has takes those with it,
    /// so that its set stays prefix-closed; keys that it does not have are passed over.
    pub fn remove(&mut self, holder: HolderId, keys: &[BlockKey]) -> u32 {
        if self.held(holder).is_none() {
            return 0;
        }
        let mut lost = 0;
        let mut pending: Option<(RunId, u32)> = None;
        let mut before: Slot = NONE;
        for (at, key) in keys.iter().enumerate() {
            if let Some(key) = keys.get(at + AHEAD) {
                self.table.prefetch(*key);
            }
            let Some(slot) = self.find_near(*key, before) else { continue };
            before = slot;
            let run = self.slots.owner(slot);
            let Some(meta) = self.runs.get(run) else { continue };
            let cutoff = slot - meta.start;
            pending = match pending {
                Some((same, lowest)) if same == run => Some((run, lowest.min(cutoff))),
                other => {
                    lost += other.map_or(0, |(run, cutoff)| self.cut(run, holder, cutoff));
                    // Cutting may have split or merged what comes next.
                    let run = self.slots.owner(slot);
                    self.runs.get(run).map(|meta| (run, slot - meta.start))
                }
            };
        }
        lost += pending.map_or(0, |(run, cutoff)| self.cut(run, holder, cutoff));
        self.trim_down_to(KEPT + self.alive / KEPT_SHARE);
        lost
    }

    /// Takes all blocks from a holder, which stays.
    pub fn clear(&mut self, holder: HolderId) {
        let Some(held) = self.held(holder) else { return };
        let depth = |run: &RunId| self.runs.get(*run).map_or(0, |meta| meta.depth);
        let mut runs: Vec<(u32, RunId)> = held.runs.iter().map(|run| (depth(run), *run)).collect();
        runs.sort_unstable_by(|left, right| right.cmp(left));
        for (at, (_, run)) in runs.iter().enumerate() {
            if let Some((_, ahead)) = runs.get(at + AHEAD)
                && let Some(header) = self.header(*ahead)
            {
                prefetch(header);
            }
            self.lower(*run, holder, 0);
        }
        if let Some(held) = self.holders.get_mut(holder.index()) {
            held.runs = Vec::new();
            held.left = 0;
        }
        self.trim_down_to(KEPT + self.alive / KEPT_SHARE);
    }

    /// Leaves a holder the first `cutoff` blocks of a run, and nothing that continues the others.
    pub(crate) fn cut(&mut self, run: RunId, holder: HolderId, cutoff: u32) -> u32 {
        let had = self.cutoff(run, holder);
        let Some(meta) = self.runs.get(run).filter(|_| cutoff < had) else { return 0 };
        let mut lost = 0;
        if meta.child != NONE {
            let from = meta.start + cutoff;
            for below in self.held_below(run, from, holder).into_iter().rev() {
                lost += self.lower(below, holder, 0);
            }
        }
        lost += self.lower(run, holder, cutoff);
        if self.counts.splits > self.counts.merges {
            self.try_merge(run);
        }
        self.try_few(run);
        lost
    }

    /// Lists the runs below a slot of a run that a holder is in, each after the one it continues.
    fn held_below(&self, run: RunId, from: Slot, holder: HolderId) -> Vec<RunId> {
        let held = |run: &RunId| self.cutoff(*run, holder) > 0;
        let mut found: Vec<RunId> = self.continuing(run, from).into_iter().filter(held).collect();
        let mut next = 0;
        while let Some(run) = found.get(next) {
            let below: Vec<RunId> = self.children(*run).map(|(child, _)| child).filter(held).collect();
            found.extend(below);
            next += 1;
        }
        found
    }

    /// Finds a key, first in the slot before the one found last: removals go down a run.
    fn find_near(&self, key: BlockKey, before: Slot) -> Option<Slot> {
        if before != NONE
            && let Some(near) = before.checked_sub(1)
            && self.slots.owner(near) != NONE
            && self.slots.key(near) == Some(key)
        {
            return Some(near);
        }
        self.table.find(key, &self.slots)
    }

    /// Trims runs, those that wait longest first, until so many blocks without holders are left.
    pub(crate) fn trim_down_to(&mut self, kept: u32) {
        while self.table.len() - self.alive > kept
            && let Some(run) = self.runs.to_trim.pop_front()
        {
            self.trim(run);
        }
    }
}
