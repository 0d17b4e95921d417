//! The index's invariants as functions.

use std::collections::HashSet;

use identity::KeySetDigest;

use crate::index::{Index, State};
use crate::limits::HolderId;
use crate::runs::{Meta, RunId};
use crate::slots::NONE;
use crate::sync::Ordering;

/// An invariant that does not hold; the index has a defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index invariant broken: {0}")]
pub struct Broken(pub String);

impl Index {
    /// Tells whether every present holder has, with each block, all blocks before it.
    #[must_use]
    pub fn is_prefix_closed(&self) -> bool {
        self.runs.iter().filter(|(_, meta)| meta.len > 0 && meta.parent != NONE).all(|(run, meta)| {
            let present = |(holder, _): &(HolderId, u32)| self.held(*holder).is_some();
            self.members(run)
                .iter()
                .filter(|member| present(member))
                .all(|(holder, _)| self.has_slot(*holder, meta.parent))
        })
    }

    /// Checks everything that must hold between two changes. For tests: the cost is linear in all blocks of all holders.
    ///
    /// # Errors
    /// Names the first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        ensure(self.is_prefix_closed(), || "a holder lacks the parent of a block it has".to_owned())?;
        let (mut blocks, mut alive, mut heads) = (0_u32, 0_u32, 0_usize);
        for (run, meta) in self.runs.iter().filter(|(_, meta)| meta.len > 0) {
            self.check_run(run, meta)?;
            blocks += meta.len;
            alive += meta.alive;
            heads += 1;
        }
        ensure(blocks == self.table.len(), || {
            format!("{blocks} blocks in runs, {} in the table", self.table.len())
        })?;
        ensure(alive == self.alive, || format!("{alive} blocks with holders, {} counted", self.alive))?;
        ensure(heads == self.fill.live, || format!("{heads} runs, {} published", self.fill.live))?;
        let mut memberships = 0;
        for holder in self.holders() {
            memberships += self.check_holder(holder)?;
        }
        let counted = self.counts.memberships;
        ensure(memberships == counted, || format!("{memberships} memberships, {counted} counted"))
    }

    fn check_run(&self, run: RunId, meta: &Meta) -> Result<(), Broken> {
        let header = self.header(run).ok_or_else(|| Broken(format!("run {run} has no header")))?;
        let shape = header.shape.load(Ordering::Relaxed);
        ensure(shape & 0xffff_ffff == u64::from(meta.len), || {
            format!("run {run}: length {} not published", meta.len)
        })?;
        let members = self.members(run);
        let most = members.iter().map(|(_, cutoff)| *cutoff).max().unwrap_or(0);
        ensure(most == meta.alive, || format!("run {run}: holders reach {most}, not {}", meta.alive))?;
        let distinct: HashSet<_> = members.iter().map(|(holder, _)| *holder).collect();
        let count = members.len();
        ensure(distinct.len() == count, || format!("run {run}: a holder is in it twice"))?;
        ensure(count == meta.members as usize, || {
            format!("run {run}: {count} holders, {} counted", meta.members)
        })?;
        ensure(meta.alive == meta.len || meta.queued, || format!("run {run}: dead blocks wait for nothing"))?;
        let above = if meta.parent == NONE { NONE } else { self.slots.owner(meta.parent) };
        ensure(self.children(above).any(|(child, _)| child == run), || {
            format!("run {run}: not listed above")
        })?;
        let depth = self.runs.get(above).map_or(0, |above| above.depth + (meta.parent - above.start) + 1);
        ensure(depth == meta.depth, || format!("run {run}: depth {depth}, not {}", meta.depth))?;
        for (key, slot) in self.slots.keys(meta.start, meta.len).iter().zip(meta.start..) {
            ensure(self.slots.owner(slot) == run, || format!("run {run}: slot {slot} belongs to another"))?;
            ensure(self.table.find(*key, &self.slots) == Some(slot), || {
                format!("run {run}: {key} not in the table")
            })?;
        }
        let first = self.slots.key(meta.start);
        let found = first.and_then(|key| self.shared.find_head(key)).map(|(run, _)| run);
        ensure(found == Some(run), || format!("run {run}: not found by its first key"))?;
        for (holder, _) in members {
            let listed = self.holders.get(holder.index()).is_some_and(|held| held.runs.contains(&run));
            let leaving = self.holders.get(holder.index()).is_some_and(|held| held.state != State::Present);
            ensure(listed || leaving, || format!("run {run}: not on the list of {holder:?}"))?;
        }
        Ok(())
    }

    fn check_holder(&self, holder: HolderId) -> Result<u64, Broken> {
        let mut digest = KeySetDigest::default();
        for key in self.runs(holder).flat_map(|run| run.keys) {
            digest.add(*key);
        }
        ensure(self.digest(holder) == Some(&digest), || format!("{holder:?}: digest differs from its runs"))?;
        ensure(self.blocks(holder) == digest.len(), || {
            format!("{holder:?}: {} blocks counted", self.blocks(holder))
        })?;
        Ok(digest.len())
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(what())) }
}
