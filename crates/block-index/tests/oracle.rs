//! The index against a naive model: one set of keys per holder.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail by panicking, and its sizes are small"
)]

use std::collections::{BTreeMap, BTreeSet};

use block_index::{HolderId, Index, Limits, Matches, Reader, Refused, Run};
use identity::{BlockKey, KeySetDigest};
use proptest::prelude::*;

/// A tree of prompts: a chain's key at depth `d` names all digits up to `d`.
fn chain(digits: &[u8]) -> Vec<BlockKey> {
    let mut key = 0x5151_u64;
    let step = |digit: &u8| {
        key = (key ^ u64::from(*digit) ^ 0x9e37).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29);
        BlockKey::new(key)
    };
    digits.iter().map(step).collect()
}

/// What the model knows: each holder's chains as sets of keys, and every key's parent.
#[derive(Debug, Default)]
struct Model {
    held: BTreeMap<u32, BTreeSet<BlockKey>>,
    parents: BTreeMap<BlockKey, Option<BlockKey>>,
}

impl Model {
    fn depth(&self, holder: u32, keys: &[BlockKey]) -> u32 {
        self.held
            .get(&holder)
            .map_or(0, |held| keys.iter().take_while(|key| held.contains(key)).count() as u32)
    }

    fn remove(&mut self, holder: u32, key: BlockKey) {
        let Some(held) = self.held.get_mut(&holder) else { return };
        let mut gone = BTreeSet::from([key]);
        if !held.remove(&key) {
            return;
        }
        loop {
            let below: Vec<_> = held
                .iter()
                .filter(|key| self.parents[key].is_some_and(|p| gone.contains(&p)))
                .copied()
                .collect();
            if below.is_empty() {
                return;
            }
            for key in below {
                held.remove(&key);
                gone.insert(key);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Store { holder: u32, digits: Vec<u8>, from: usize },
    RemoveTail { holder: u32, digits: Vec<u8>, count: usize },
    RemoveMiddle { holder: u32, digits: Vec<u8>, at: usize },
    Clear { holder: u32 },
    Leave { holder: u32 },
    Replace { holder: u32, by: Vec<Vec<u8>> },
    Sweep { budget: usize },
}

/// Chains that share long beginnings: a few trunks, then digits of a small alphabet.
fn digits() -> impl Strategy<Value = Vec<u8>> {
    let trunk = prop_oneof![Just(0_usize), Just(5), Just(12), Just(30), Just(70)];
    (0_u8..3, trunk, prop::collection::vec(0_u8..3, 0..14)).prop_map(|(kind, trunk, rest)| {
        let mut digits = vec![kind + 10; trunk];
        digits.extend(rest);
        digits.push(7);
        digits
    })
}

fn change(holders: u32) -> impl Strategy<Value = Change> {
    let holder = 0..holders;
    prop_oneof![
        8 => (holder.clone(), digits(), 0_usize..40).prop_map(|(holder, digits, from)| Change::Store { holder, digits, from }),
        4 => (holder.clone(), digits(), 1_usize..50).prop_map(|(holder, digits, count)| Change::RemoveTail { holder, digits, count }),
        1 => (holder.clone(), digits(), 0_usize..60).prop_map(|(holder, digits, at)| Change::RemoveMiddle { holder, digits, at }),
        1 => holder.clone().prop_map(|holder| Change::Clear { holder }),
        1 => holder.clone().prop_map(|holder| Change::Leave { holder }),
        1 => (holder, prop::collection::vec(digits(), 0..6)).prop_map(|(holder, by)| Change::Replace { holder, by }),
        2 => (0_usize..20).prop_map(|budget| Change::Sweep { budget }),
    ]
}

struct Both {
    index: Index,
    reader: Reader,
    ids: BTreeMap<u32, HolderId>,
    model: Model,
    found: Matches,
}

impl Both {
    fn new() -> Self {
        let (index, reader) = block_index::new(Limits { holders_max: 80, blocks_max: 100_000 });
        Self { index, reader, ids: BTreeMap::new(), model: Model::default(), found: Matches::new() }
    }

    fn id(&mut self, holder: u32) -> Option<HolderId> {
        if !self.ids.contains_key(&holder) {
            let id = self.index.add_holder().ok()?;
            self.ids.insert(holder, id);
        }
        self.ids.get(&holder).copied()
    }

    fn store(&mut self, holder: u32, keys: &[BlockKey], from: usize) {
        let Some(id) = self.id(holder) else { return };
        for (at, key) in keys.iter().enumerate() {
            self.model.parents.entry(*key).or_insert(at.checked_sub(1).map(|at| keys[at]));
        }
        let from = from.min(keys.len());
        let parent = from.checked_sub(1).map(|at| keys[at]);
        let held = self.model.held.entry(holder).or_default();
        let stored = self.index.store(id, parent, &keys[from..]);
        if parent.is_some_and(|parent| !held.contains(&parent)) {
            assert!(matches!(stored, Err(Refused::NoParent(_))), "{stored:?}");
            return;
        }
        let added = keys[from..].iter().filter(|key| held.insert(**key)).count();
        assert_eq!(stored.unwrap().added as usize, added);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Store { holder, digits, from } => {
                let keys = chain(digits);
                let depth = self.model.depth(*holder, &keys) as usize;
                // Mostly valid parents; sometimes one that is not held.
                let from = if from % 8 == 7 { *from } else { from % (depth + 1) };
                self.store(*holder, &keys, from);
            }
            Change::RemoveTail { holder, digits, count } => {
                let Some(id) = self.ids.get(holder).copied() else { return };
                let keys = chain(digits);
                let depth = self.model.depth(*holder, &keys) as usize;
                let gone: Vec<_> = keys[depth.saturating_sub(*count)..depth].iter().rev().copied().collect();
                let before = self.model.held.get(holder).map_or(0, BTreeSet::len);
                for key in &gone {
                    self.model.remove(*holder, *key);
                }
                let after = self.model.held.get(holder).map_or(0, BTreeSet::len);
                assert_eq!(self.index.remove(id, &gone) as usize, before - after);
            }
            Change::RemoveMiddle { holder, digits, at } => {
                let Some(id) = self.ids.get(holder).copied() else { return };
                let keys = chain(digits);
                let key = keys[at % keys.len()];
                self.model.remove(*holder, key);
                self.index.remove(id, &[key]);
            }
            Change::Clear { holder } => {
                let Some(id) = self.ids.get(holder).copied() else { return };
                self.index.clear(id);
                self.model.held.remove(holder);
            }
            Change::Leave { holder } => {
                let Some(id) = self.ids.remove(holder) else { return };
                self.index.remove_holder(id);
                self.model.held.remove(holder);
            }
            Change::Replace { holder, by } => self.replace(*holder, by),
            Change::Sweep { budget } => {
                self.index.sweep(*budget);
            }
        }
    }

    fn replace(&mut self, holder: u32, by: &[Vec<u8>]) {
        let Some(id) = self.id(holder) else { return };
        let chains: Vec<Vec<BlockKey>> = by.iter().map(|digits| chain(digits)).collect();
        for keys in &chains {
            for (at, key) in keys.iter().enumerate() {
                self.model.parents.entry(*key).or_insert(at.checked_sub(1).map(|at| keys[at]));
            }
        }
        let runs: Vec<Run<'_>> = chains.iter().map(|keys| Run { parent: None, keys }).collect();
        self.index.replace(id, &runs).unwrap();
        self.model.held.insert(holder, chains.into_iter().flatten().collect());
    }

    fn check(&mut self, queries: &[Vec<u8>]) {
        self.index.check().unwrap();
        for (holder, id) in &self.ids {
            let held = self.model.held.get(holder).cloned().unwrap_or_default();
            assert_eq!(self.index.blocks(*id), held.len() as u64);
            let mut digest = KeySetDigest::default();
            held.iter().for_each(|key| digest.add(*key));
            assert_eq!(self.index.digest(*id), Some(&digest));
        }
        for digits in queries {
            let mut keys = chain(digits);
            keys.truncate(60 + digits.len() % 9);
            self.reader.matches(&keys, &mut self.found);
            let mut answered: Vec<(HolderId, u32)> = self.found.iter().collect();
            answered.sort_unstable();
            let depths = self.ids.iter().map(|(holder, id)| (*id, self.model.depth(*holder, &keys)));
            let mut expected: Vec<_> = depths.filter(|(_, depth)| *depth > 0).collect();
            expected.sort_unstable();
            assert_eq!(answered, expected);
            let depths: Vec<u32> = self.found.groups().map(|group| group.depth).collect();
            assert!(depths.is_sorted_by(|left, right| left >= right), "{depths:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_equal_the_model(changes in prop::collection::vec(change(40), 1..160), queries in prop::collection::vec(digits(), 8)) {
        let mut both = Both::new();
        for change in &changes {
            both.apply(change);
            both.check(&queries[..1]);
        }
        both.check(&queries);
        let ids: Vec<HolderId> = both.ids.values().copied().collect();
        // Out and in again: the same set, by all runs and by buckets.
        for id in &ids {
            let copy = both.index.add_holder().unwrap();
            let runs: Vec<(Option<BlockKey>, Vec<BlockKey>)> = both.index.runs(*id).map(|run| (run.parent, run.keys.to_vec())).collect();
            let runs: Vec<Run<'_>> = runs.iter().map(|(parent, keys)| Run { parent: *parent, keys }).collect();
            both.index.replace(copy, &runs[..runs.len() / 2]).unwrap();
            let differing: Vec<u8> = both.index.digest(*id).unwrap().differing(both.index.digest(copy).unwrap()).collect();
            let buckets: Vec<(Option<BlockKey>, Vec<BlockKey>)> = both.index.bucket_runs(*id, &differing).map(|run| (run.parent, run.keys.to_vec())).collect();
            let buckets: Vec<Run<'_>> = buckets.iter().map(|(parent, keys)| Run { parent: *parent, keys }).collect();
            both.index.replace_buckets(copy, &differing, &buckets).unwrap();
            prop_assert_eq!(both.index.digest(copy), both.index.digest(*id));
            both.index.remove_holder(copy);
            both.index.check().unwrap();
        }
        for id in ids {
            both.index.remove_holder(id);
        }
        for _ in 0..10_000 {
            if !both.index.sweep(64) {
                break;
            }
        }
        both.index.check().unwrap();
        prop_assert_eq!((both.index.stats().blocks, both.index.stats().blocks_kept, both.index.stats().runs), (0, 0, 0));
    }

    #[test]
    fn many_holders_share_a_trunk(changes in prop::collection::vec(change(70), 60..200), queries in prop::collection::vec(digits(), 8)) {
        let mut both = Both::new();
        for change in &changes {
            both.apply(change);
        }
        both.check(&queries);
    }
}
