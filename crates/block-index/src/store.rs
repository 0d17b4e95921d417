//! Blocks come in.

use identity::BlockKey;

use crate::index::{Index, RUNS_SPARE, runs_max};
use crate::limits::{HolderId, Refused, Stored};
use crate::members::Draft;
use crate::runs::{Meta, RunId};
use crate::slots::{LAID, NONE, RANGE_MAX, Slot};

/// How far ahead of an insertion its place in the table is asked for.
const AHEAD: usize = 8;

/// Blocks that were laid down for a store, not yet visible.
#[derive(Debug, Default)]
struct Laid {
    /// How much the run at whose end they begin has grown in place.
    grown: u32,
    /// Slots of the runs that follow: first slot and length.
    ranges: Vec<(Slot, u32)>,
}

impl Index {
    /// Stores consecutive blocks of a holder: `keys` continue `parent`, or begin a prompt.
    ///
    /// Blocks that the holder has already are passed over. Readers see all of the blocks or none.
    ///
    /// # Errors
    /// Nothing is changed. [`Refused::NoParent`]: a change was lost or refused before; compare digests and repair.
    /// [`Refused::SecondParent`]: two feeds disagree on what a key means; drop the holder's. [`Refused::Blocks`]: the
    /// index is full; go without this holder. [`Refused::NoHolder`]: the holder is not present.
    pub fn store(
        &mut self,
        holder: HolderId,
        parent: Option<BlockKey>,
        keys: &[BlockKey],
    ) -> Result<Stored, Refused> {
        let stored = self.try_store(holder, parent, keys);
        match stored {
            Err(Refused::NoParent(_)) => self.counts.refused_parents += 1,
            Err(Refused::SecondParent(_)) => self.counts.second_parents += 1,
            Err(Refused::Blocks { .. }) => self.counts.refused_blocks += 1,
            Ok(_) | Err(Refused::NoHolder(_) | Refused::Holders { .. }) => {}
        }
        stored
    }

    fn try_store(
        &mut self,
        holder: HolderId,
        parent: Option<BlockKey>,
        keys: &[BlockKey],
    ) -> Result<Stored, Refused> {
        if self.held(holder).is_none() {
            return Err(Refused::NoHolder(holder));
        }
        if let Some(first) = keys.first() {
            self.table.prefetch(*first);
        }
        if self.table.len() as usize + keys.len() > self.limits.blocks_max as usize {
            self.trim_down_to(0);
        }
        let at = parent
            .map(|parent| self.parent_slot(holder, parent).ok_or(Refused::NoParent(parent)))
            .transpose()?;
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let stored = self.store_along(holder, at.unwrap_or(NONE), keys, &mut path);
        self.path = path;
        stored
    }

    fn store_along(
        &mut self,
        holder: HolderId,
        at: Slot,
        keys: &[BlockKey],
        path: &mut Vec<(RunId, u32)>,
    ) -> Result<Stored, Refused> {
        let (mut last, known) = self.walk(at, keys, path)?;
        let fresh = keys.get(known..).unwrap_or_default();
        let mut added = 0_u32;
        if !fresh.is_empty() {
            self.check_room(fresh.len())?;
            let laid = self.lay(last, fresh)?;
            last = self.publish(holder, last, &laid, path);
            added = laid.ranges.iter().map(|(_, len)| *len).sum();
        }
        for (run, cutoff) in path.iter().rev() {
            added += self.raise(*run, holder, *cutoff);
        }
        if self.counts.splits > self.counts.merges {
            for (run, _) in path.iter().rev().skip(1) {
                self.try_merge(*run);
            }
        }
        if let Some(held) = self.holders.get_mut(holder.index()) {
            held.last = last;
        }
        Ok(Stored { added, fresh: u32::try_from(fresh.len()).unwrap_or(u32::MAX) })
    }

    /// Finds the slot of a block that the holder has.
    fn parent_slot(&self, holder: HolderId, parent: BlockKey) -> Option<Slot> {
        let guess = self.held(holder)?.last;
        let guessed =
            guess != NONE && self.slots.owner(guess) != NONE && self.slots.key(guess) == Some(parent);
        let slot = if guessed { guess } else { self.table.find(parent, &self.slots)? };
        self.has_slot(holder, slot).then_some(slot)
    }

    /// Follows keys through blocks that are there already, noting the runs passed; answers the last slot and how many.
    fn walk(
        &mut self,
        at: Slot,
        keys: &[BlockKey],
        path: &mut Vec<(RunId, u32)>,
    ) -> Result<(Slot, usize), Refused> {
        let (mut last, mut known) = (at, 0_usize);
        if let Some((run, meta)) = self.run_at(at) {
            let upto = at - meta.start + 1;
            let same = common(self.slots.keys(at + 1, meta.len - upto), keys);
            if same > 0 {
                path.push((run, upto + same));
                (last, known) = (at + same, same as usize);
            }
        }
        while let Some(key) = keys.get(known)
            && let Some(slot) = self.table.find(*key, &self.slots)
        {
            let Some((run, meta)) =
                self.run_at(slot).filter(|(_, meta)| meta.start == slot && meta.parent == last)
            else {
                return Err(Refused::SecondParent(*key));
            };
            let rest = keys.get(known..).unwrap_or_default();
            let same = common(self.slots.keys(meta.start, meta.len), rest);
            path.push((run, same));
            (last, known) = (meta.start + same - 1, known + same as usize);
        }
        Ok((last, known))
    }

    fn run_at(&self, slot: Slot) -> Option<(RunId, &Meta)> {
        if slot == NONE {
            return None;
        }
        let run = self.slots.owner(slot);
        self.runs.get(run).map(|meta| (run, meta))
    }

    /// Checks that so many blocks fit.
    fn check_room(&self, wanted: usize) -> Result<(), Refused> {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let max = self.limits.blocks_max;
        if self.table.len().saturating_add(wanted) <= max && self.runs.count() < runs_max(max) - RUNS_SPARE {
            return Ok(());
        }
        Err(self.full(wanted as usize))
    }

    fn full(&self, wanted: usize) -> Refused {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        Refused::Blocks { wanted, blocks: self.alive, blocks_max: self.limits.blocks_max }
    }

    /// Writes new blocks into slots and the table; undone if one of them is in the table.
    fn lay(&mut self, last: Slot, keys: &[BlockKey]) -> Result<Laid, Refused> {
        let mut laid = Laid::default();
        let mut rest = keys;
        if let Some((run, room)) = self.growth(last, rest.len()) {
            let (now, later) = rest.split_at_checked(room as usize).unwrap_or((rest, &[]));
            self.slots.write(last + 1, now, run);
            laid.grown = room;
            rest = later;
        }
        while !rest.is_empty() {
            let len = rest.len().min(RANGE_MAX as usize);
            let (now, later) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            let len = u32::try_from(len).unwrap_or(RANGE_MAX);
            let Some(start) = self.slots.allocate(len) else {
                self.unlay(last, keys, &laid, 0);
                return Err(self.full(keys.len()));
            };
            self.slots.write(start, now, LAID);
            laid.ranges.push((start, len));
            rest = later;
        }
        for key in keys.iter().take(AHEAD) {
            self.table.prefetch(*key);
        }
        let grown = (last.wrapping_add(1), laid.grown);
        let ranges = std::iter::once(grown).chain(laid.ranges.iter().copied());
        let slots = ranges.flat_map(|(start, len)| start..start + len);
        for (done, (key, slot)) in keys.iter().zip(slots).enumerate() {
            if let Some(key) = keys.get(done + AHEAD) {
                self.table.prefetch(*key);
            }
            if self.table.insert(*key, slot, &self.slots).is_some() {
                self.unlay(last, keys, &laid, done);
                return Err(Refused::SecondParent(*key));
            }
        }
        Ok(laid)
    }

    /// Takes back what was laid, of which `done` keys had entered the table.
    fn unlay(&mut self, last: Slot, keys: &[BlockKey], laid: &Laid, done: usize) {
        let grown = (last.wrapping_add(1), laid.grown);
        let ranges = std::iter::once(grown).chain(laid.ranges.iter().copied());
        for (key, slot) in
            keys.iter().zip(ranges.clone().flat_map(|(start, len)| start..start + len)).take(done)
        {
            self.table.remove(*key, slot);
        }
        for (start, len) in ranges.filter(|(_, len)| *len > 0) {
            self.slots.set_owner(start, len, NONE);
            self.slots.free(start, len);
        }
    }

    /// Tells by how many blocks the run that ends in `last` may grow in place, and takes the slots.
    fn growth(&mut self, last: Slot, want: usize) -> Option<(RunId, u32)> {
        let (run, meta) = self.run_at(last)?;
        let at_end = meta.start + meta.len == last + 1 && !meta.sealed && meta.len < RANGE_MAX;
        let header = self.header(run)?;
        let holders_keep = header.many().is_none() && meta.members > 0;
        if !at_end || !holders_keep {
            return None;
        }
        let want = u32::try_from(want).unwrap_or(RANGE_MAX).min(RANGE_MAX - meta.len);
        let room = self.slots.extend(last + 1, want);
        (room > 0).then_some((run, room))
    }

    /// Makes laid blocks visible: later runs first, then the run that grew; answers the last slot.
    fn publish(&mut self, holder: HolderId, last: Slot, laid: &Laid, path: &mut Vec<(RunId, u32)>) -> Slot {
        let grown = if laid.grown > 0 { self.run_at(last).map(|(run, meta)| (run, meta.len)) } else { None };
        let depth = self.run_at(last).map_or(0, |(_, meta)| meta.depth + (last - meta.start) + 1);
        let end = last.wrapping_add(laid.grown);
        let mut above = (end, depth + laid.grown);
        let mut made: Vec<RunId> = Vec::new();
        if let Some((run, len)) = grown
            && let Some(meta) = self.runs.get_mut(run)
        {
            // The writer's own view first: runs that follow find their parent by it.
            meta.len = len + laid.grown;
        }
        for (start, len) in &laid.ranges {
            let mut meta = Meta::new(*start, *len, above.0, above.1);
            meta.alive = *len;
            let mut draft = Draft { bits: Vec::new(), partial: Vec::new() };
            draft.set(holder, *len, *len);
            self.alive += *len;
            made.extend(self.make_run(meta, &draft));
            self.count_in(holder, *start, 0, *len);
            above = (start + len - 1, above.1 + len);
        }
        for run in made.into_iter().rev() {
            if let Some(head) = self.runs.get(run).and_then(|meta| self.slots.key(meta.start)) {
                self.publish_head(head, run);
            }
        }
        if let Some((run, len)) = grown {
            if let Some(header) = self.header(run) {
                header.reshape(len + laid.grown);
            }
            path.retain(|(other, _)| *other != run);
            path.push((run, len + laid.grown));
        }
        above.0
    }
}

/// Counts the keys that two lists have in common from their beginnings.
pub(crate) fn common(left: &[BlockKey], right: &[BlockKey]) -> u32 {
    const STEP: usize = 16;
    let (lefts, rights) = (left.chunks_exact(STEP), right.chunks_exact(STEP));
    let differ = |(left, right): (&[BlockKey], &[BlockKey])| {
        left.iter().zip(right).fold(0, |acc, (left, right)| acc | (left.get() ^ right.get())) != 0
    };
    let steps = lefts.zip(rights).take_while(|pair| !differ(*pair)).count();
    let from = steps * STEP;
    let (left, right) = (left.get(from..).unwrap_or_default(), right.get(from..).unwrap_or_default());
    let more = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    u32::try_from(from + more).unwrap_or(u32::MAX)
}
