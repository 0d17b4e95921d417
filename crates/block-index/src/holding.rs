//! How much of a run a holder has, and every change of that.

use crate::index::Index;
use crate::limbo::{Garbage, ManyMemory};
use crate::limits::HolderId;
use crate::members::{Draft, FEW, Many, NOBODY, PARTIAL, members, pack, unpack, word_of};
use crate::runs::RunId;
use crate::sync::{AtomicU32, Ordering, own_u32};

impl Index {
    /// Returns how many of a run's blocks a holder has.
    pub(crate) fn cutoff(&self, run: RunId, holder: HolderId) -> u32 {
        let (Some(header), Some(meta)) = (self.header(run), self.runs.get(run)) else { return 0 };
        let words = match header.many() {
            Some(many) if many.has_bit(holder) => return meta.len,
            Some(many) => many.partial(),
            None => &header.few,
        };
        let word = word_of(words, Some(holder)).map_or(NOBODY, own_u32);
        if word == NOBODY { 0 } else { unpack(word).1.min(meta.len) }
    }

    /// Lists a run's holders with their cutoffs.
    pub(crate) fn members(&self, run: RunId) -> Vec<(HolderId, u32)> {
        let (Some(header), Some(meta)) = (self.header(run), self.runs.get(run)) else { return Vec::new() };
        let len = meta.len;
        match header.many() {
            Some(many) => many.draft().iter(len).map(|(holder, cutoff)| (holder, cutoff.min(len))).collect(),
            None => members(&header.few).map(|(holder, cutoff)| (holder, cutoff.min(len))).collect(),
        }
    }

    /// Gives a holder the first `cutoff` blocks of a run, and returns how many it did not have.
    pub(crate) fn raise(&mut self, run: RunId, holder: HolderId, cutoff: u32) -> u32 {
        let had = self.cutoff(run, holder);
        let Some(meta) = self.runs.get_mut(run) else { return 0 };
        if cutoff <= had {
            return 0;
        }
        let revived = cutoff.saturating_sub(meta.alive);
        meta.alive += revived;
        let start = meta.start;
        self.alive += revived;
        self.count_in(holder, start, had, cutoff);
        if had == 0
            && let Some(held) = self.holders.get_mut(holder.index())
        {
            held.runs.push(run);
        }
        self.put(run, holder, had, cutoff);
        cutoff - had
    }

    /// Leaves a holder only the first `cutoff` blocks of a run, and returns how many it lost.
    pub(crate) fn lower(&mut self, run: RunId, holder: HolderId, cutoff: u32) -> u32 {
        let had = self.cutoff(run, holder);
        let Some(start) = self.runs.get(run).map(|meta| meta.start) else { return 0 };
        if cutoff >= had {
            return 0;
        }
        self.count_out(holder, start, cutoff, had);
        let split = self.put(run, holder, had, cutoff);
        if cutoff == 0 {
            self.note_left(holder);
        }
        for run in std::iter::once(run).chain(split) {
            self.settle(run);
        }
        had - cutoff
    }

    /// Recomputes how far a run has holders; what lies beyond waits to be trimmed.
    pub(crate) fn settle(&mut self, run: RunId) {
        let Some(header) = self.header(run) else { return };
        let Some(meta) = self.runs.get(run) else { return };
        let words = match header.many() {
            Some(_) if meta.whole > 0 => return,
            Some(many) => many.partial(),
            None => &header.few,
        };
        let alive = members(words).map(|(_, cutoff)| cutoff.min(meta.len)).max().unwrap_or(0);
        let Some(meta) = self.runs.get_mut(run) else { return };
        let died = meta.alive.saturating_sub(alive);
        meta.alive = alive;
        self.alive -= died;
        if alive < meta.len && !meta.queued {
            meta.queued = true;
            self.runs.to_trim.push_back(run);
        }
    }

    /// Adds the keys of a range to a holder's digest and count.
    pub(crate) fn count_in(&mut self, holder: HolderId, start: u32, from: u32, upto: u32) {
        let Some(held) = self.holders.get_mut(holder.index()) else { return };
        held.blocks += u64::from(upto - from);
        self.counts.memberships += u64::from(upto - from);
        for key in self.slots.keys(start + from, upto - from) {
            held.digest.add(*key);
        }
    }

    fn count_out(&mut self, holder: HolderId, start: u32, from: u32, upto: u32) {
        let Some(held) = self.holders.get_mut(holder.index()) else { return };
        held.blocks -= u64::from(upto - from);
        self.counts.memberships -= u64::from(upto - from);
        for key in self.slots.keys(start + from, upto - from) {
            held.digest.take(*key);
        }
    }

    /// Notes that a holder left a run, and cleans its list once half of it is stale.
    pub(crate) fn note_left(&mut self, holder: HolderId) {
        let Some(held) = self.holders.get_mut(holder.index()) else { return };
        held.left += 1;
        if held.left * 2 > held.runs.len() + 32 {
            let mut runs = std::mem::take(&mut held.runs);
            runs.sort_unstable();
            runs.dedup();
            runs.retain(|run| self.cutoff(*run, holder) > 0);
            runs.shrink_to(runs.len() + runs.len() / 4);
            if let Some(held) = self.holders.get_mut(holder.index()) {
                held.runs = runs;
                held.left = 0;
            }
        }
    }

    /// Sets a holder's cutoff; returns the run that was split off, if it took a split.
    pub(crate) fn put(&mut self, run: RunId, holder: HolderId, had: u32, cutoff: u32) -> Option<RunId> {
        let len = self.runs.get(run)?.len;
        let header = self.header(run)?;
        let word = if cutoff == 0 { NOBODY } else { pack(holder, cutoff) };
        let mut whole = 0_i32;
        let done = match header.many() {
            None => {
                let place = word_of(&header.few, Some(holder)).or_else(|| word_of(&header.few, None));
                place.map(|place| place.store(word, Ordering::Release)).is_some()
            }
            Some(many) if many.has_bit(holder) => {
                whole = -1;
                cutoff == 0 && many.set_bit(holder, false)
            }
            Some(many) => {
                let own = word_of(many.partial(), Some(holder));
                if let Some(place) = own {
                    place.store(word, Ordering::Release);
                    true
                } else if cutoff >= len {
                    whole = 1;
                    many.set_bit(holder, true)
                } else {
                    let place = word_of(many.partial(), None);
                    place.map(|place| place.store(word, Ordering::Release)).is_some()
                }
            }
        };
        if !done {
            return self.redraft(run, holder, cutoff);
        }
        if let Some(meta) = self.runs.get_mut(run) {
            meta.whole = meta.whole.saturating_add_signed(whole);
            meta.members = meta.members + u32::from(had == 0) - u32::from(cutoff == 0);
        }
        None
    }

    /// Sets a cutoff where that takes another `Many`, and perhaps a split.
    fn redraft(&mut self, run: RunId, holder: HolderId, cutoff: u32) -> Option<RunId> {
        let len = self.runs.get(run)?.len;
        let draft = self.draft_of(run, len)?;
        let mut promoted = draft;
        for (other, cutoff) in promoted.partial.clone() {
            promoted.set(other, cutoff, len);
        }
        promoted.set(holder, cutoff, len);
        if promoted.partial.len() > PARTIAL {
            return self.split(run, &promoted);
        }
        self.set_many(run, &promoted);
        None
    }

    /// Takes a copy of a run's holders.
    pub(crate) fn draft_of(&self, run: RunId, len: u32) -> Option<Draft> {
        let header = self.header(run)?;
        Some(header.many().map_or_else(
            || {
                let mut draft = Draft { bits: Vec::new(), partial: Vec::new() };
                for (holder, cutoff) in members(&header.few) {
                    draft.set(holder, cutoff, len);
                }
                draft
            },
            |many| many.draft(),
        ))
    }

    /// Publishes a draft as a run's holders.
    pub(crate) fn set_many(&mut self, run: RunId, draft: &Draft) {
        let stamp = self.shared.epochs.stamp();
        let Some(header) = self.header(run) else { return };
        let old = header.many.swap(Many::allocate(draft), Ordering::AcqRel);
        let bytes = header.many().map_or(0, Many::bytes);
        if let Some(meta) = self.runs.get_mut(run) {
            if old.is_null() {
                meta.left_few = stamp;
            }
            meta.whole = draft.bits.iter().map(|word| word.count_ones()).sum();
            meta.members = meta.whole + u32::try_from(draft.partial.len()).unwrap_or(u32::MAX);
        }
        self.counts.many_bytes += bytes;
        self.retire_many(old);
    }

    /// Goes back to the words in the header, if the holders fit and nobody can be reading old ones.
    pub(crate) fn try_few(&mut self, run: RunId) {
        let Some(meta) = self.runs.get(run) else { return };
        let few_enough = meta.members as usize + 1 < FEW.max(2) && meta.left_few < self.safe;
        let Some(header) = self.header(run) else { return };
        let Some(many) = header.many().filter(|_| few_enough) else { return };
        let held: Vec<_> = many.draft().iter(meta.len).collect();
        for (place, index) in header.few.iter().zip(0_usize..) {
            let word = held.get(index).map_or(NOBODY, |(holder, cutoff)| pack(*holder, *cutoff));
            place.store(word, Ordering::Relaxed);
        }
        let old = header.many.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if let Some(meta) = self.runs.get_mut(run) {
            meta.whole = 0;
        }
        self.retire_many(old);
    }

    /// Retires a `Many` that was just unlinked; null does nothing.
    #[expect(unsafe_code, reason = "retires what was published by pointer")]
    pub(crate) fn retire_many(&mut self, old: *mut AtomicU32) {
        // SAFETY: null or from `Many::allocate`; this one was swapped out just now, and stays allocated until its grace.
        let Some(many) = (unsafe { Many::at(old) }) else { return };
        self.counts.many_bytes -= many.bytes();
        // SAFETY: as above; it is unlinked and handed over once.
        let memory = unsafe { ManyMemory::retired(old) };
        self.retire(Garbage::Many { _memory: memory });
    }
}
