//! How runs come, split, merge, shrink and go.
//!
//! The order of stores matters to readers, who take in a run's shape, its holders and the way onwards, and start the run
//! again if the shape changed meanwhile:
//!
//! ```text
//! split   publish the tail as a run → shorten the run → tidy its holders        a longer run's holders mean the same
//! merge   give the run holders that mean the same at both lengths → lengthen it → hide the tail → mark it dead
//! free    hide the run → mark it dead                                            it had no holders
//! ```

use identity::BlockKey;

use crate::index::Index;
use crate::limbo::Garbage;
use crate::limits::HolderId;
use crate::members::{Draft, FEW, Many, NOBODY, PARTIAL, pack, word_of};
use crate::runs::{DEAD, Header, Meta, RunId};
use crate::slots::{NONE, RANGE_MAX, Slot, same_chunk};
use crate::sync::{AtomicU32, Ordering};

/// Partial holders up to which a merged run is worth it; well below `PARTIAL`, so that it does not split at once.
const MERGED_PARTIAL: usize = PARTIAL / 2;

impl Index {
    /// Makes a run over written slots, with these holders, not yet published under its first key.
    pub(crate) fn make_run(&mut self, meta: Meta, holders: &Draft) -> Option<RunId> {
        let (start, len, parent) = (meta.start, meta.len, meta.parent);
        let head = self.slots.key(start)?;
        let run = self.runs.allocate(&self.shared.directory, meta)?;
        let count = holders.iter(len).count();
        let many = if count > FEW { Many::allocate(holders) } else { std::ptr::null_mut() };
        let header = self.header(run)?;
        fill(header, head, start, many);
        if many.is_null() {
            for (place, (holder, cutoff)) in header.few.iter().zip(holders.iter(len)) {
                place.store(pack(holder, cutoff), Ordering::Relaxed);
            }
        }
        header.reshape(len);
        self.counts.many_bytes += header.many().map_or(0, Many::bytes);
        let whole = if many.is_null() { 0 } else { holders.bits.iter().map(|word| word.count_ones()).sum() };
        if let Some(meta) = self.runs.get_mut(run) {
            meta.whole = whole;
            meta.members = u32::try_from(count).unwrap_or(u32::MAX);
        }
        for (holder, _) in holders.iter(len) {
            if let Some(held) = self.holders.get_mut(holder.index()) {
                held.runs.push(run);
            }
        }
        self.slots.set_owner(start, len, run);
        self.link(run, parent);
        Some(run)
    }

    /// Enters a run among those that continue its parent.
    pub(crate) fn link(&mut self, run: RunId, parent: u32) {
        let above = if parent == NONE { NONE } else { self.slots.owner(parent) };
        let first = self.first_child(above).replace(run);
        if let Some(meta) = self.runs.get_mut(run) {
            (meta.prev, meta.next) = (NONE, first);
        }
        if let Some(meta) = self.runs.get_mut(first) {
            meta.prev = run;
        }
    }

    fn unlink(&mut self, run: RunId) {
        let Some((parent, prev, next)) = self.runs.get(run).map(|meta| (meta.parent, meta.prev, meta.next))
        else {
            return;
        };
        if let Some(meta) = self.runs.get_mut(next) {
            meta.prev = prev;
        }
        let above = if parent == NONE { NONE } else { self.slots.owner(parent) };
        if let Some(meta) = self.runs.get_mut(prev) {
            meta.next = next;
        } else {
            self.first_child(above).replace(next);
        }
        self.guess_next(above);
    }

    fn first_child(&mut self, above: RunId) -> FirstChild<'_> {
        FirstChild(self.runs.get_mut(above).map_or(&mut self.roots, |meta| &mut meta.child))
    }

    /// Lists the runs that continue a run (`NONE`: the roots).
    pub(crate) fn children(&self, run: RunId) -> impl Iterator<Item = (RunId, &Meta)> + '_ {
        let first = self.runs.get(run).map_or(self.roots, |meta| meta.child);
        let first = if run != NONE && self.runs.get(run).is_none() { NONE } else { first };
        std::iter::successors(self.runs.get(first).map(|meta| (first, meta)), |(_, meta)| {
            self.runs.get(meta.next).map(|next| (meta.next, next))
        })
    }

    /// Splits a run where most of its partial holders end, and gives both parts their share of `holders`.
    pub(crate) fn split(&mut self, run: RunId, holders: &Draft) -> Option<RunId> {
        let meta = self.runs.get(run)?.clone();
        let at = best_cut(holders)?;
        let (first, rest) = divide(holders, at, meta.len);
        let mut tail = Meta::new(meta.start + at, meta.len - at, meta.start + at - 1, meta.depth + at);
        tail.sealed = meta.sealed;
        tail.alive = meta.alive.saturating_sub(at);
        tail.queued = tail.alive < tail.len;
        let (moved, start) = (tail.queued, tail.start);
        let children: Vec<(RunId, u32)> =
            self.children(run).map(|(child, below)| (child, below.parent)).collect();
        let tail = self.make_run(tail, &rest)?;
        for (child, parent) in children.into_iter().filter(|(_, parent)| *parent >= start) {
            self.move_child(child, run, tail, parent);
        }
        if moved {
            self.runs.to_trim.push_back(tail);
        }
        if let Some(head) = self.slots.key(start) {
            self.publish_head(head, tail);
        }
        let meta = self.runs.get_mut(run)?;
        (meta.len, meta.sealed, meta.alive) = (at, true, meta.alive.min(at));
        self.header(run)?.reshape(at);
        self.set_many(run, &first);
        self.counts.splits += 1;
        Some(tail)
    }

    /// Moves a run from the list of one run above it to that of another.
    fn move_child(&mut self, child: RunId, from: RunId, to: RunId, parent: u32) {
        let Some((prev, next)) = self.runs.get(child).map(|meta| (meta.prev, meta.next)) else { return };
        if let Some(meta) = self.runs.get_mut(next) {
            meta.prev = prev;
        }
        if let Some(meta) = self.runs.get_mut(prev) {
            meta.next = next;
        } else {
            self.first_child(from).replace(next);
        }
        self.guess_next(from);
        debug_assert_eq!(self.slots.owner(parent), to, "the block before a run belongs to the run above it");
        self.link(child, parent);
        self.guess_next(to);
    }

    /// Undoes a split whose reason has gone: `run` and the run in the slots after it become one.
    pub(crate) fn try_merge(&mut self, run: RunId) -> Option<()> {
        let meta = self.runs.get(run)?.clone();
        let next = self.slots.owner(meta.start.checked_add(meta.len)?);
        let tail = self.runs.get(next)?.clone();
        let adjoins = tail.start == meta.start + meta.len
            && tail.parent == tail.start - 1
            && same_chunk(tail.parent, tail.start);
        let members = meta.members as usize;
        let in_use = meta.alive == meta.len && tail.alive > 0;
        if !adjoins || !in_use || meta.len + tail.len > RANGE_MAX {
            return None;
        }
        let lost = meta.members.saturating_sub(tail.members) as usize;
        if members > FEW && lost > MERGED_PARTIAL {
            return None;
        }
        let joined = self.joined(run, next)?;
        if members > FEW && joined.partial.len() > MERGED_PARTIAL {
            return None;
        }
        self.keep_meaning(run, &joined, meta.len + tail.len);
        self.unlink(next);
        self.slots.set_owner(tail.start, tail.len, run);
        let children: Vec<(RunId, u32)> =
            self.children(next).map(|(child, below)| (child, below.parent)).collect();
        for (child, parent) in children {
            self.move_child(child, next, run, parent);
        }
        let above = self.runs.get_mut(run)?;
        above.len += tail.len;
        above.alive += tail.alive;
        above.sealed = tail.sealed;
        let ghost = above.alive < above.len && !above.queued;
        above.queued |= ghost;
        if ghost {
            self.runs.to_trim.push_back(run);
        }
        self.header(run)?.reshape(meta.len + tail.len);
        for (holder, _) in self.members(next) {
            self.note_left(holder);
        }
        self.counts.merges += 1;
        self.bury(next);
        self.settle(run);
        Some(())
    }

    /// Computes the holders of two adjoining runs as of one.
    fn joined(&self, run: RunId, next: RunId) -> Option<Draft> {
        let (len, tail_len) = (self.runs.get(run)?.len, self.runs.get(next)?.len);
        let below = self.draft_of(next, tail_len)?;
        let below: std::collections::HashMap<HolderId, u32> = below.iter(tail_len).collect();
        let mut joined = Draft { bits: Vec::new(), partial: Vec::new() };
        for (holder, cutoff) in self.members(run) {
            let more = if cutoff >= len { below.get(&holder).copied().unwrap_or(0) } else { 0 };
            joined.set(holder, cutoff + more.min(tail_len), len + tail_len);
        }
        Some(joined)
    }

    /// Gives a run holders that mean the same at its present and at its coming length.
    fn keep_meaning(&mut self, run: RunId, joined: &Draft, len: u32) {
        let few = self.header(run).filter(|header| header.many().is_none());
        let Some(header) = few else { return self.set_many(run, joined) };
        for (holder, cutoff) in joined.iter(len) {
            if let Some(place) = word_of(&header.few, Some(holder)) {
                place.store(pack(holder, cutoff), Ordering::Release);
            }
        }
    }

    /// Takes the blocks without holders off a run's end, or the whole run away.
    pub(crate) fn trim(&mut self, run: RunId) {
        let Some(meta) = self.runs.get_mut(run) else { return };
        meta.queued = false;
        let (start, alive, len) = (meta.start, meta.alive, meta.len);
        if alive >= len || len == 0 {
            return;
        }
        // Runs that continue dead blocks are without holders themselves: closure.
        let mut doomed: Vec<RunId> = Vec::new();
        let mut frontier = if alive == 0 { vec![run] } else { self.continuing(run, start + alive) };
        while let Some(next) = frontier.pop() {
            doomed.push(next);
            frontier.extend(self.children(next).map(|(child, _)| child));
        }
        for next in doomed.into_iter().rev() {
            self.free_run(next);
        }
        if alive > 0 {
            if let Some(header) = self.header(run) {
                header.reshape(alive);
            }
            self.drop_keys(start + alive, len - alive);
            if let Some(meta) = self.runs.get_mut(run) {
                (meta.len, meta.sealed) = (alive, true);
            }
        }
    }

    /// Lists the runs that continue a run at or after a slot.
    pub(crate) fn continuing(&self, run: RunId, slot: u32) -> Vec<RunId> {
        self.children(run).filter(|(_, below)| below.parent >= slot).map(|(child, _)| child).collect()
    }

    /// Takes a run without holders out of the tree.
    fn free_run(&mut self, run: RunId) {
        let Some(meta) = self.runs.get(run).cloned() else { return };
        debug_assert_eq!(meta.child, NONE, "runs below go first");
        // Only holders on their way out can still be in it; their lists tell live from stale by looking.
        self.alive -= meta.alive;
        self.unlink(run);
        self.bury(run);
        self.drop_keys(meta.start, meta.len);
    }

    /// Hides a run, marks it dead and sends it to limbo; its slots stay.
    fn bury(&mut self, run: RunId) {
        let Some(header) = self.header(run) else { return };
        let head = BlockKey::new(header.head.load(Ordering::Relaxed));
        self.hide_head(head, run);
        let Some(header) = self.header(run) else { return };
        header.shape.store(DEAD, Ordering::Release);
        // The holders stay in the header for readers in it; they are freed with the run.
        self.counts.many_bytes -= header.many().map_or(0, Many::bytes);
        if let Some(meta) = self.runs.get_mut(run) {
            *meta = Meta::new(NONE, 0, NONE, 0);
        }
        self.retire(Garbage::Run(run));
    }

    /// Forgets the keys of slots and sends the slots to limbo.
    pub(crate) fn drop_keys(&mut self, start: u32, len: u32) {
        for key in self.slots.keys(start, len) {
            self.table.forget(*key);
        }
        self.slots.set_owner(start, len, NONE);
        self.retire(Garbage::Slots { start, len });
        self.table.purge(&self.slots);
    }
}

/// The place where a list of children begins.
struct FirstChild<'a>(&'a mut RunId);

impl FirstChild<'_> {
    fn replace(self, run: RunId) -> RunId {
        std::mem::replace(self.0, run)
    }
}

/// Fills a header nobody can see yet.
fn fill(header: &Header, head: BlockKey, start: Slot, many: *mut AtomicU32) {
    header.head.store(head.get(), Ordering::Relaxed);
    header.slot.store(start, Ordering::Relaxed);
    header.next.store(0, Ordering::Relaxed);
    for place in &header.few {
        place.store(NOBODY, Ordering::Relaxed);
    }
    header.many.store(many, Ordering::Release);
}

/// Picks where to cut: where most partial holders end; among equals the one nearest the middle of them.
fn best_cut(holders: &Draft) -> Option<u32> {
    let mut cutoffs: Vec<u32> = holders.partial.iter().map(|(_, cutoff)| *cutoff).collect();
    cutoffs.sort_unstable();
    let middle = cutoffs.len() / 2;
    let count = |cutoff: u32| cutoffs.iter().filter(|other| **other == cutoff).count();
    let places = cutoffs.iter().zip(0_usize..);
    places
        .max_by_key(|(cutoff, at)| (count(**cutoff), std::cmp::Reverse(at.abs_diff(middle))))
        .map(|(cut, _)| *cut)
}

/// Divides holders of a run of `len` blocks between its first `at` blocks and the rest.
fn divide(holders: &Draft, at: u32, len: u32) -> (Draft, Draft) {
    let mut first = Draft { bits: holders.bits.clone(), partial: Vec::new() };
    let mut rest = first.clone();
    for (holder, cutoff) in &holders.partial {
        first.set(*holder, (*cutoff).min(at), at);
        rest.set(*holder, cutoff.saturating_sub(at), len - at);
    }
    (first, rest)
}
