//! A holder's blocks as runs, out and in.

use std::collections::{HashMap, HashSet};

use identity::{BlockKey, KeySetDigest};

use crate::index::Index;
use crate::limits::{HolderId, Refused};
use crate::runs::RunId;
use crate::slots::NONE;

/// Consecutive blocks of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The block before the first; `None` where a prompt begins.
    pub parent: Option<BlockKey>,
    /// The blocks, each after the one before it; at least one.
    pub keys: &'a [BlockKey],
}

impl Index {
    /// Lists a holder's blocks as runs, parents before what continues them.
    ///
    /// Stored in that order elsewhere, they make the same set; see [`Index::replace`].
    pub fn runs(&self, holder: HolderId) -> impl Iterator<Item = Run<'_>> + '_ {
        self.runs_of(holder).into_iter().filter_map(move |(run, cutoff)| {
            let meta = self.runs.get(run)?;
            Some(Run { parent: self.key_before(meta.start, run), keys: self.slots.keys(meta.start, cutoff) })
        })
    }

    /// Lists those of a holder's blocks that fall into some digest buckets, in the same form and order.
    pub fn bucket_runs(&self, holder: HolderId, buckets: &[u8]) -> impl Iterator<Item = Run<'_>> + '_ {
        let mut wanted = [false; 256];
        for bucket in buckets {
            if let Some(place) = wanted.get_mut(usize::from(*bucket)) {
                *place = true;
            }
        }
        self.runs(holder).flat_map(move |run| Wanted { run, wanted })
    }

    /// Makes a holder's blocks exactly those of `runs`, parents first.
    ///
    /// Blocks on both sides stay visible throughout; those that go, go before those that are new come.
    ///
    /// # Errors
    /// As [`Index::store`]; the holder then has a prefix-closed part of `runs`, and its digest tells how much.
    pub fn replace(&mut self, holder: HolderId, runs: &[Run<'_>]) -> Result<(), Refused> {
        if self.held(holder).is_none() {
            return Err(Refused::NoHolder(holder));
        }
        let wanted = self.wanted_cutoffs(runs);
        for (run, cutoff) in self.runs_of(holder).into_iter().rev() {
            let keep = wanted.get(&run).copied().unwrap_or(0);
            if keep < cutoff {
                self.lower(run, holder, keep);
            }
        }
        self.store_runs(holder, runs)
    }

    /// Makes those of a holder's blocks that fall into some digest buckets exactly those of `runs`, parents first.
    ///
    /// A block that goes takes along what continues it, in whatever bucket.
    ///
    /// # Errors
    /// As [`Index::store`]; some of `runs` are then missing, and the digest tells so.
    pub fn replace_buckets(
        &mut self,
        holder: HolderId,
        buckets: &[u8],
        runs: &[Run<'_>],
    ) -> Result<(), Refused> {
        let wanted: HashSet<BlockKey> = runs.iter().flat_map(|run| run.keys).copied().collect();
        let held = self.bucket_runs(holder, buckets).flat_map(|run| run.keys.iter().copied());
        let mut gone: Vec<BlockKey> = held.filter(|key| !wanted.contains(key)).collect();
        gone.reverse();
        self.remove(holder, &gone);
        self.store_runs(holder, runs)
    }

    fn store_runs(&mut self, holder: HolderId, runs: &[Run<'_>]) -> Result<(), Refused> {
        for run in runs {
            self.store(holder, run.parent, run.keys)?;
        }
        Ok(())
    }

    /// Computes how far into each present run some keys reach.
    fn wanted_cutoffs(&self, runs: &[Run<'_>]) -> HashMap<RunId, u32> {
        let mut wanted = HashMap::new();
        for key in runs.iter().flat_map(|run| run.keys) {
            let Some(slot) = self.table.find(*key, &self.slots) else { continue };
            let run = self.slots.owner(slot);
            if let Some(meta) = self.runs.get(run) {
                let reach = slot - meta.start + 1;
                wanted.entry(run).and_modify(|most: &mut u32| *most = (*most).max(reach)).or_insert(reach);
            }
        }
        wanted
    }

    /// Lists the runs a holder is in with its cutoffs, parents first.
    fn runs_of(&self, holder: HolderId) -> Vec<(RunId, u32)> {
        let Some(held) = self.held(holder) else { return Vec::new() };
        let depth = |run: &RunId| self.runs.get(*run).map_or(0, |meta| meta.depth);
        let mut runs: Vec<(u32, RunId)> = held.runs.iter().map(|run| (depth(run), *run)).collect();
        runs.sort_unstable();
        runs.dedup();
        runs.into_iter()
            .map(|(_, run)| (run, self.cutoff(run, holder)))
            .filter(|(_, cutoff)| *cutoff > 0)
            .collect()
    }

    fn key_before(&self, start: u32, run: RunId) -> Option<BlockKey> {
        let parent = self.runs.get(run).filter(|meta| meta.start == start)?.parent;
        if parent == NONE { None } else { self.slots.key(parent) }
    }
}

/// The stretches of a run that lie in wanted buckets.
#[derive(Debug)]
struct Wanted<'a> {
    run: Run<'a>,
    wanted: [bool; 256],
}

impl<'a> Iterator for Wanted<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let is_wanted = |key: &BlockKey| {
            let bucket = usize::from(KeySetDigest::bucket_of(*key));
            self.wanted.get(bucket).copied().unwrap_or(false)
        };
        let (skipped, rest) = self.run.keys.split_at_checked(self.run.keys.iter().position(is_wanted)?)?;
        let parent = skipped.last().copied().or(self.run.parent);
        let len = rest.iter().position(|key| !is_wanted(key)).unwrap_or(rest.len());
        let (keys, rest) = rest.split_at_checked(len)?;
        self.run = Run { parent: keys.last().copied(), keys: rest };
        Some(Run { parent, keys })
    }
}
