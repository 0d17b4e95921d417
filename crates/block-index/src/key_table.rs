//! The writer's table from key to slot, eight bytes an entry.
//!
//! An entry is the upper half of the key and the slot. Its home is `tag · capacity / 2³²`, so entries lie in the order
//! of their tags: growing is one pass through both tables and reads no key. A table is 64 segments by the tag's top bits;
//! each grows by itself, so that no single store waits for the whole.
//!
//! Keys that go are only counted: an entry whose slot is nobody's, or has a key with another tag, is stale. A segment is
//! rid of stale entries in one pass once they are a third of it.

use identity::BlockKey;

use crate::slots::{Slot, Slots};
use crate::sync::prefetch;

const SEGMENT_BITS: u32 = 6;
const EMPTY: u64 = 0;
const CAPACITY_MIN: u32 = 16;

/// Maps every stored key to its slot.
#[derive(Debug)]
pub(crate) struct KeyTable {
    segments: Box<[Segment]>,
    len: u32,
    /// A bit for each segment with enough stale entries.
    due: u64,
}

#[derive(Debug)]
struct Segment {
    entries: Box<[u64]>,
    /// Entries, stale ones included.
    len: u32,
    stale: u32,
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        let segments = (0..1 << SEGMENT_BITS).map(|_| Segment::with_capacity(CAPACITY_MIN)).collect();
        Self { segments, len: 0, due: 0 }
    }

    /// Counts the keys.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.entries.len() as u64 * 8).sum()
    }

    /// Brings the place of a key near.
    pub(crate) fn prefetch(&self, key: BlockKey) {
        let tag = tag_of(key);
        if let Some(segment) = self.segments.get(segment_of(tag))
            && let Some(entry) = segment.entries.get(segment.home(tag))
        {
            prefetch(entry);
        }
    }

    /// Finds a key's slot.
    pub(crate) fn find(&self, key: BlockKey, slots: &Slots) -> Option<Slot> {
        let tag = tag_of(key);
        let segment = self.segments.get(segment_of(tag))?;
        segment.find(tag, |slot| slots.holds(slot, key)).map(|(_, slot)| slot)
    }

    /// Adds a key; answers the slot it is in already, if it is.
    pub(crate) fn insert(&mut self, key: BlockKey, slot: Slot, slots: &Slots) -> Option<Slot> {
        let tag = tag_of(key);
        let segment = self.segments.get_mut(segment_of(tag))?;
        if segment.len >= segment.limit() {
            segment.make_room(slots);
        }
        let mut at = segment.home(tag);
        loop {
            let entry = segment.entries.get_mut(at)?;
            if *entry == EMPTY {
                *entry = pack(tag, slot);
                break;
            }
            let (other, found) = unpack(*entry);
            if other == tag && found == slot {
                // A stale entry of the same slot: it says the same again.
                segment.stale = segment.stale.saturating_sub(1);
                self.len += 1;
                return None;
            }
            if other == tag && slots.holds(found, key) {
                return Some(found);
            }
            at = segment.after(at);
        }
        segment.len += 1;
        self.len += 1;
        None
    }

    /// Notes that a key went; its slot is, or is about to be, nobody's.
    pub(crate) fn forget(&mut self, key: BlockKey) {
        let index = segment_of(tag_of(key));
        let Some(segment) = self.segments.get_mut(index) else { return };
        segment.stale += 1;
        self.len -= 1;
        self.due |= u64::from(segment.stale * 3 > segment.len) << index;
    }

    /// Rids one segment of stale entries, if one has enough of them.
    pub(crate) fn purge(&mut self, slots: &Slots) {
        if self.due == 0 {
            return;
        }
        let index = self.due.trailing_zeros();
        self.due &= self.due - 1;
        if let Some(segment) = self.segments.get_mut(index as usize) {
            segment.rebuild(slots);
        }
    }

    /// Takes a key out at once, if it is there in that slot.
    pub(crate) fn remove(&mut self, key: BlockKey, slot: Slot) {
        let tag = tag_of(key);
        let Some(segment) = self.segments.get_mut(segment_of(tag)) else { return };
        let Some((place, _)) = segment.find(tag, |found| found == slot) else { return };
        segment.close_gap(place);
        segment.len -= 1;
        self.len -= 1;
    }

    /// Gives back memory that is no longer needed.
    pub(crate) fn shrink(&mut self, slots: &Slots) {
        for segment in &mut self.segments {
            let live = segment.len.saturating_sub(segment.stale);
            let sparse = live < segment.capacity() / 4 && segment.capacity() > CAPACITY_MIN;
            if sparse || segment.stale > live / 2 {
                segment.rebuild(slots);
            }
        }
        self.due = 0;
    }
}

impl Segment {
    fn with_capacity(capacity: u32) -> Self {
        Self { entries: vec![EMPTY; capacity as usize].into_boxed_slice(), len: 0, stale: 0 }
    }

    fn capacity(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Three quarters full.
    fn limit(&self) -> u32 {
        self.capacity() / 4 * 3
    }

    fn home(&self, tag: u32) -> usize {
        let within = u64::from(tag << SEGMENT_BITS);
        ((within * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    fn find(&self, tag: u32, is: impl Fn(Slot) -> bool) -> Option<(usize, Slot)> {
        let mut at = self.home(tag);
        loop {
            let entry = *self.entries.get(at)?;
            if entry == EMPTY {
                return None;
            }
            let (other, slot) = unpack(entry);
            if other == tag && is(slot) {
                return Some((at, slot));
            }
            at = self.after(at);
        }
    }

    /// Moves later entries of the cluster back over a removed one.
    fn close_gap(&mut self, mut hole: usize) {
        let mut at = hole;
        loop {
            at = self.after(at);
            let Some(&entry) = self.entries.get(at) else { return };
            if entry == EMPTY {
                break;
            }
            let home = self.home(unpack(entry).0);
            let movable = if hole <= at { home <= hole || home > at } else { home <= hole && home > at };
            if movable {
                if let Some(place) = self.entries.get_mut(hole) {
                    *place = entry;
                }
                hole = at;
            }
        }
        if let Some(place) = self.entries.get_mut(hole) {
            *place = EMPTY;
        }
    }

    /// Makes room for more entries: by ridding it of stale ones if they are many, else by growing.
    fn make_room(&mut self, slots: &Slots) {
        if self.stale > self.len / 8 {
            self.rebuild(slots);
        }
        if self.len >= self.limit() {
            self.resize(self.capacity() / 5 * 7 + CAPACITY_MIN / 2, |_| true);
        }
    }

    /// Keeps only the live entries, in a table about half full.
    fn rebuild(&mut self, slots: &Slots) {
        let live = self.len.saturating_sub(self.stale);
        self.resize(live + live / 2 + live / 4 + CAPACITY_MIN, |entry| {
            let (tag, slot) = unpack(entry);
            slots.live_key(slot).is_some_and(|key| tag_of(key) == tag)
        });
        self.stale = 0;
    }

    fn resize(&mut self, capacity: u32, keep: impl Fn(u64) -> bool) {
        let mut grown = Self::with_capacity(capacity);
        for entry in self.entries.iter().filter(|entry| **entry != EMPTY && keep(**entry)) {
            let mut at = grown.home(unpack(*entry).0);
            while grown.entries.get(at).is_some_and(|place| *place != EMPTY) {
                at = grown.after(at);
            }
            if let Some(place) = grown.entries.get_mut(at) {
                *place = *entry;
                grown.len += 1;
            }
        }
        self.entries = grown.entries;
        self.len = grown.len;
    }
}

const fn tag_of(key: BlockKey) -> u32 {
    (key.get() >> 32) as u32
}

const fn segment_of(tag: u32) -> usize {
    (tag >> (32 - SEGMENT_BITS)) as usize
}

fn pack(tag: u32, slot: Slot) -> u64 {
    u64::from(tag) << 32 | u64::from(slot + 1)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
const fn unpack(entry: u64) -> (u32, Slot) {
    ((entry >> 32) as u32, entry as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::KeyTable;
    use crate::slots::{NONE, Slots};
    use identity::BlockKey;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn table_equals_a_map(changes in prop::collection::vec((any::<bool>(), 0_u64..400), 1..600), spread in any::<u64>()) {
            let mut slots = Slots::new(crate::slots::directory(1_000));
            let mut table = KeyTable::new();
            let mut model = HashMap::new();
            for (add, number) in changes {
                // Few distinct upper halves: long clusters, wrap-around and equal tags.
                let key = BlockKey::new((number % 40).wrapping_mul(spread | 1 << 60) ^ number << 3 ^ 0xffff_fff0_0000_0000);
                let held = model.get(&key).copied();
                if add {
                    let slot = slots.allocate(1).unwrap();
                    slots.write(slot, &[key], 0);
                    prop_assert_eq!(table.insert(key, slot, &slots), held);
                    model.entry(key).or_insert(slot);
                } else if let Some(slot) = held {
                    if number % 2 == 0 {
                        table.remove(key, slot);
                    } else {
                        slots.set_owner(slot, 1, NONE);
                        slots.free(slot, 1);
                        table.forget(key);
                        table.purge(&slots);
                    }
                    model.remove(&key);
                }
                if number % 16 == 0 {
                    table.shrink(&slots);
                }
                prop_assert_eq!(table.len() as usize, model.len());
                for (key, slot) in &model {
                    prop_assert_eq!(table.find(*key, &slots), Some(*slot));
                }
            }
        }
    }
}
