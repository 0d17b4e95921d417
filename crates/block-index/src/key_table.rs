//! The writer's table from key to slot, eight bytes an entry.
//!
//! An entry is the upper half of the key and the slot. Its home is `tag · capacity / 2³²`, so entries lie in the order
//! of their tags: growing is one pass through both tables and reads no key. A table is 64 segments by the tag's top bits;
//! each grows by itself, so that no single store waits for the whole.

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
}

#[derive(Debug)]
struct Segment {
    entries: Box<[u64]>,
    len: u32,
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        let segments = (0..1 << SEGMENT_BITS).map(|_| Segment::with_capacity(CAPACITY_MIN)).collect();
        Self { segments, len: 0 }
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
        segment.find(tag, |slot| slots.key(slot) == Some(key)).map(|(_, slot)| slot)
    }

    /// Adds a key; answers the slot it is in already, if it is.
    pub(crate) fn insert(&mut self, key: BlockKey, slot: Slot, slots: &Slots) -> Option<Slot> {
        let tag = tag_of(key);
        let segment = self.segments.get_mut(segment_of(tag))?;
        if segment.len >= segment.limit() {
            segment.resize(segment.capacity() / 5 * 7 + CAPACITY_MIN / 2);
        }
        let mut at = segment.home(tag);
        loop {
            let entry = segment.entries.get_mut(at)?;
            if *entry == EMPTY {
                *entry = pack(tag, slot);
                break;
            }
            let (other, found) = unpack(*entry);
            if other == tag && slots.key(found) == Some(key) {
                return Some(found);
            }
            at = segment.after(at);
        }
        segment.len += 1;
        self.len += 1;
        None
    }

    /// Takes a key out, if it is there in that slot.
    pub(crate) fn remove(&mut self, key: BlockKey, slot: Slot) {
        let tag = tag_of(key);
        let Some(segment) = self.segments.get_mut(segment_of(tag)) else { return };
        let Some((place, _)) = segment.find(tag, |found| found == slot) else { return };
        segment.close_gap(place);
        segment.len -= 1;
        self.len -= 1;
    }

    /// Gives back memory that is no longer needed.
    pub(crate) fn shrink(&mut self) {
        for segment in &mut self.segments {
            if segment.len < segment.capacity() / 4 && segment.capacity() > CAPACITY_MIN {
                segment.resize((segment.len / 2 * 3 + CAPACITY_MIN / 2).max(CAPACITY_MIN));
            }
        }
    }
}

impl Segment {
    fn with_capacity(capacity: u32) -> Self {
        Self { entries: vec![EMPTY; capacity as usize].into_boxed_slice(), len: 0 }
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

    fn resize(&mut self, capacity: u32) {
        let mut grown = Self::with_capacity(capacity);
        for entry in self.entries.iter().filter(|entry| **entry != EMPTY) {
            let mut at = grown.home(unpack(*entry).0);
            while grown.entries.get(at).is_some_and(|place| *place != EMPTY) {
                at = grown.after(at);
            }
            if let Some(place) = grown.entries.get_mut(at) {
                *place = *entry;
            }
        }
        self.entries = grown.entries;
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
    use crate::slots::Slots;
    use identity::BlockKey;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn table_equals_a_map(changes in prop::collection::vec((any::<bool>(), 0_u64..400), 1..600), spread in any::<u64>()) {
            let mut slots = Slots::new();
            let mut table = KeyTable::new();
            let mut model = HashMap::new();
            for (add, number) in changes {
                // Few distinct upper halves: long clusters, wrap-around and equal tags.
                let key = BlockKey::new((number % 40).wrapping_mul(spread | 1 << 60) ^ number << 3 ^ 0xffff_fff0_0000_0000);
                let held = model.get(&key).copied();
                if add {
                    let slot = slots.allocate(1);
                    slots.write(slot, &[key], 0);
                    prop_assert_eq!(table.insert(key, slot, &slots), held);
                    model.entry(key).or_insert(slot);
                } else if let Some(slot) = held {
                    table.remove(key, slot);
                    model.remove(&key);
                }
                table.shrink();
                prop_assert_eq!(table.len() as usize, model.len());
                for (key, slot) in &model {
                    prop_assert_eq!(table.find(*key, &slots), Some(*slot));
                }
            }
        }
    }
}
