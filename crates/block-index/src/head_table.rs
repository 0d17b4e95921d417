//! The table in which readers find runs by their first key.
//!
//! One entry per run, so it stays in cache: the key's lower half and the run's number. Only the writer changes it, one
//! word at a time. A removed entry leaves a tombstone; a table too full of either is replaced by a copy, and the old one
//! is read to the end by those who are in it.

use identity::BlockKey;

use crate::sync::{AtomicU64, Ordering, own_u64};

const EMPTY: u64 = 0;
/// An entry of run `NONE`: never the number of a run.
const TOMBSTONE: u64 = u32::MAX as u64;
const CAPACITY_MIN: usize = if cfg!(loom) { 4 } else { 64 };

/// One table; immutable in size.
#[derive(Debug)]
pub(crate) struct HeadTable {
    entries: Box<[AtomicU64]>,
}

/// The writer's counts of the table in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fill {
    pub(crate) live: usize,
    pub(crate) dead: usize,
}

impl HeadTable {
    /// Makes a table that so many runs fill to a half.
    pub(crate) fn for_runs(runs: usize) -> Self {
        let entries = (0..(runs * 2).max(CAPACITY_MIN)).map(|_| AtomicU64::new(EMPTY)).collect();
        Self { entries }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entries.len() as u64 * 8
    }

    /// Tells whether another entry would fill the table to more than three quarters.
    pub(crate) fn is_full(&self, fill: Fill) -> bool {
        (fill.live + fill.dead + 1) * 4 > self.entries.len() * 3
    }

    /// Tells whether the table is much larger than its entries need.
    pub(crate) fn is_sparse(&self, fill: Fill) -> bool {
        self.entries.len() > CAPACITY_MIN && fill.live * 8 < self.entries.len()
    }

    /// Finds the run that begins with a key: `check` tells whether a candidate does.
    pub(crate) fn find<T>(&self, key: BlockKey, check: impl Fn(u32) -> Option<T>) -> Option<T> {
        let tag = tag_of(key);
        let mut at = self.home(tag);
        loop {
            let entry = self.entries.get(at)?.load(Ordering::Acquire);
            if entry == EMPTY {
                return None;
            }
            let (other, run) = unpack(entry);
            if other == tag
                && entry != TOMBSTONE
                && let Some(found) = check(run)
            {
                return Some(found);
            }
            at = self.after(at);
        }
    }

    /// Adds an entry, and tells whether it took the place of a tombstone. Only the writer calls it, with room left.
    pub(crate) fn insert(&self, key: BlockKey, run: u32) -> bool {
        let tag = tag_of(key);
        let mut at = self.home(tag);
        while let Some(place) = self.entries.get(at) {
            let entry = own_u64(place);
            if entry == EMPTY || entry == TOMBSTONE {
                place.store(pack(tag, run), Ordering::Release);
                return entry == TOMBSTONE;
            }
            at = self.after(at);
        }
        false
    }

    /// Puts a tombstone in the place of an entry. Only the writer calls it.
    pub(crate) fn remove(&self, key: BlockKey, run: u32) -> bool {
        let wanted = pack(tag_of(key), run);
        let mut at = self.home(tag_of(key));
        while let Some(place) = self.entries.get(at) {
            let entry = own_u64(place);
            if entry == wanted {
                place.store(TOMBSTONE, Ordering::Release);
                return true;
            }
            if entry == EMPTY {
                return false;
            }
            at = self.after(at);
        }
        false
    }

    /// Copies the live entries into a table of fitting size. Only the writer calls it.
    pub(crate) fn rebuilt(&self, fill: Fill) -> Self {
        let copy = Self::for_runs(fill.live);
        for place in &self.entries {
            let entry = own_u64(place);
            if entry == EMPTY || entry == TOMBSTONE {
                continue;
            }
            let mut at = copy.home(unpack(entry).0);
            while let Some(place) = copy.entries.get(at) {
                if place.load(Ordering::Relaxed) == EMPTY {
                    place.store(entry, Ordering::Relaxed);
                    break;
                }
                at = copy.after(at);
            }
        }
        copy
    }

    fn home(&self, tag: u32) -> usize {
        let spread = u64::from(tag.wrapping_mul(0x9e37_79b1));
        ((spread * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
const fn tag_of(key: BlockKey) -> u32 {
    key.get() as u32
}

fn pack(tag: u32, run: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(run + 1)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
const fn unpack(entry: u64) -> (u32, u32) {
    ((entry >> 32) as u32, (entry as u32).wrapping_sub(1))
}
