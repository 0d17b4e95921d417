//! The writer's side: operations onto the block index, and what is known of each holder in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use block_index::{Branch, Broken, HolderId, Index, Limits, Reader, Refused, Stats};
use identity::{Holder, Incarnation, KeySetDigest};
use membership::replica::{Op, Phase, Status};
use membership::{Change, Run};

use super::view::{HolderView, IndexView};
use super::{Copied, Outcome, SWEEP_BUDGET, Withheld};

/// Sweeps before a holder is refused for want of an id; each takes well below a millisecond.
const SWEEPS_MAX: usize = 32;

/// A block index and its holders.
#[derive(Debug)]
pub(super) struct Store {
    index: Index,
    reader: Reader,
    held: HashMap<Holder, Held>,
    statuses: HashMap<Holder, Status>,
    views: HashMap<Holder, Arc<HolderView>>,
    by_id: Vec<Option<Holder>>,
    /// Holders whose view is out of date.
    touched: HashSet<Holder>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: HolderId,
    incarnation: Incarnation,
    seq: u64,
    removed: u64,
}

impl Store {
    pub(super) fn new(limits: Limits) -> Self {
        let (index, reader) = block_index::new(limits);
        Self {
            index,
            reader,
            held: HashMap::new(),
            statuses: HashMap::new(),
            views: HashMap::new(),
            by_id: Vec::new(),
            touched: HashSet::new(),
        }
    }

    /// Takes note of where holders stand, and of those that are not followed any more.
    pub(super) fn learn(&mut self, statuses: Vec<(Holder, Status)>, forgotten: &[Holder]) {
        for (holder, status) in statuses {
            self.touched.insert(holder.clone());
            self.statuses.insert(holder, status);
        }
        for holder in forgotten {
            self.touched.insert(holder.clone());
            self.statuses.remove(holder);
        }
    }

    pub(super) const fn statuses(&self) -> &HashMap<Holder, Status> {
        &self.statuses
    }

    /// Applies one operation; what a holder is refused, its replica hears of.
    pub(super) fn apply(&mut self, holder: Holder, op: Op, outcome: &mut Outcome) {
        let done = match op {
            Op::Begin { incarnation } => self.begin(&holder, incarnation),
            Op::Apply { seq, changes } => self.changes(&holder, seq, changes),
            Op::ReplaceBuckets { seq, buckets, runs } => {
                self.with(&holder, seq, |index, id| index.replace_buckets(id, &buckets, &borrowed(&runs)))
            }
            Op::Replace { seq, runs } => {
                self.with(&holder, seq, |index, id| index.replace(id, &borrowed(&runs)))
            }
            Op::Check { ticket } => {
                let digest = self.held.get(&holder).and_then(|held| self.index.digest(held.id));
                let digest = digest.cloned().unwrap_or_default();
                outcome.checks.push((holder, ticket, digest));
                return;
            }
            Op::End => {
                self.end(&holder);
                return;
            }
        };
        match done {
            Ok(()) => {}
            Err(Refused::Holders { .. } | Refused::Blocks { .. }) => {
                self.end(&holder);
                outcome.refused.push(holder);
            }
            Err(refused @ (Refused::NoHolder(_) | Refused::NoParent(_) | Refused::SecondParent(_))) => {
                // The digest differs now, which the replica finds out and repairs.
                tracing::debug!(worker = %holder.worker, %refused, "change refused by the index");
            }
        }
    }

    fn begin(&mut self, holder: &Holder, incarnation: Incarnation) -> Result<(), Refused> {
        if self.held.get(holder).is_some_and(|held| held.incarnation == incarnation) {
            return Ok(());
        }
        self.end(holder);
        let id = match self.index.add_holder() {
            Ok(id) => id,
            Err(_) => {
                // Ids of holders that left may still wait for their sweep.
                for _ in 0..SWEEPS_MAX {
                    if !self.index.sweep(SWEEP_BUDGET) {
                        break;
                    }
                }
                self.index.add_holder()?
            }
        };
        self.held.insert(holder.clone(), Held { id, incarnation, seq: 0, removed: 0 });
        self.touched.insert(holder.clone());
        if self.by_id.len() <= id.index() {
            self.by_id.resize(id.index() + 1, None);
        }
        if let Some(place) = self.by_id.get_mut(id.index()) {
            *place = Some(holder.clone());
        }
        Ok(())
    }

    fn end(&mut self, holder: &Holder) {
        if let Some(held) = self.held.remove(holder) {
            self.index.remove_holder(held.id);
            self.touched.insert(holder.clone());
            if let Some(place) = self.by_id.get_mut(held.id.index()) {
                *place = None;
            }
        }
    }

    fn with(
        &mut self,
        holder: &Holder,
        seq: u64,
        change: impl FnOnce(&mut Index, HolderId) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Some(held) = self.held.get_mut(holder) else { return Ok(()) };
        held.seq = seq;
        if !self.touched.contains(holder) {
            self.touched.insert(holder.clone());
        }
        change(&mut self.index, held.id)
    }

    fn changes(&mut self, holder: &Holder, seq: u64, changes: Vec<Change>) -> Result<(), Refused> {
        let mut removed = 0;
        let done = self.with(holder, seq, |index, id| {
            let mut first_refusal = Ok(());
            for change in changes {
                match change {
                    Change::Stored { parent, keys, .. } => {
                        let stored = index.store(id, parent, &keys).map(drop);
                        if matches!(stored, Err(Refused::Blocks { .. })) {
                            return stored;
                        }
                        first_refusal = first_refusal.and(stored);
                    }
                    Change::Removed { keys } => removed += u64::from(index.remove(id, &keys)),
                    Change::Cleared => {
                        removed += index.blocks(id);
                        index.clear(id);
                    }
                }
            }
            first_refusal
        });
        if let Some(held) = self.held.get_mut(holder) {
            held.removed = held.removed.saturating_add(removed);
        }
        done
    }

    /// Does some of the work that removals leave behind.
    pub(super) fn sweep(&mut self, budget: usize) {
        self.index.sweep(budget);
    }

    pub(super) fn stats(&self) -> Stats {
        self.index.stats()
    }

    /// Copies a holder's set for another replica.
    pub(super) fn copy(&self, holder: &Holder, life: Incarnation) -> Result<Copied, Withheld> {
        let (held, status) =
            self.held.get(holder).zip(self.statuses.get(holder)).ok_or(Withheld::NotProven)?;
        if held.incarnation != life {
            return Err(Withheld::OtherLife { present: held.incarnation });
        }
        let digest = self.index.digest(held.id);
        let proven = status.phase == Phase::Live && status.agrees == Some(true);
        let digest = digest.filter(|_| proven).cloned().ok_or(Withheld::NotProven)?;
        let runs = self.index.runs(held.id).map(|run| Run { parent: run.parent, keys: run.keys.to_vec() });
        Ok(Copied { seq: held.seq, digest, runs: runs.collect() })
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        self.index.check()
    }

    pub(super) fn tree(&self, depth: u32, limit: usize) -> Vec<Branch> {
        self.index.tree(depth, limit)
    }

    /// Makes the view of this moment.
    pub(super) fn view(&mut self, epoch: u64) -> IndexView {
        for holder in std::mem::take(&mut self.touched) {
            match self.holder_view(&holder) {
                Some(view) => drop(self.views.insert(holder, Arc::new(view))),
                None => drop(self.views.remove(&holder)),
            }
        }
        IndexView {
            reader: self.reader.clone(),
            holders: self.views.clone(),
            by_id: self.by_id.clone(),
            epoch,
        }
    }

    fn holder_view(&self, holder: &Holder) -> Option<HolderView> {
        let (held, status) = (self.held.get(holder), self.statuses.get(holder));
        let mut view = match (held, status) {
            (Some(held), _) => HolderView {
                id: Some(held.id),
                incarnation: Some(held.incarnation),
                seq: held.seq,
                removed: held.removed,
                blocks: self.index.blocks(held.id),
                digest: self.index.digest(held.id).map_or(0, KeySetDigest::fold),
                ..HolderView::default()
            },
            (None, Some(status)) => HolderView { incarnation: status.incarnation, ..HolderView::default() },
            (None, None) => return None,
        };
        if let Some(status) = status {
            view.learn(status);
        }
        Some(view)
    }
}

fn borrowed(runs: &[Run]) -> Vec<block_index::Run<'_>> {
    runs.iter().map(|run| block_index::Run { parent: run.parent, keys: &run.keys }).collect()
}
