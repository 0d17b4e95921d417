use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::block_hash::Scope;

fn hash(name: u32) -> BlockHash {
    Scope::default().hash(&BlockHash::root(), 0, &[name])
}

/// The same contract with lists instead of links: slow, and short enough to be believed.
#[derive(Debug)]
struct Naive {
    references: HashMap<BlockId, u32>,
    hashes: HashMap<BlockId, BlockHash>,
    cached_in_order: Vec<(BlockHash, BlockId)>,
    free: VecDeque<BlockId>,
}

impl Naive {
    fn new(blocks: u32) -> Self {
        Self {
            references: (0..blocks).map(|id| (id, 0)).collect(),
            hashes: HashMap::new(),
            cached_in_order: Vec::new(),
            free: (0..blocks).collect(),
        }
    }

    fn lookup(&self, hash: &BlockHash) -> Option<BlockId> {
        self.cached_in_order.iter().find(|(cached, _)| cached == hash).map(|&(_, id)| id)
    }

    fn retain(&mut self, id: BlockId) {
        self.free.retain(|&free| free != id);
        *self.references.get_mut(&id).unwrap() += 1;
    }

    fn allocate(&mut self) -> Option<(BlockId, Option<BlockHash>)> {
        let id = self.free.pop_front()?;
        self.cached_in_order.retain(|&(_, cached)| cached != id);
        self.references.insert(id, 1);
        Some((id, self.hashes.remove(&id)))
    }

    fn cache(&mut self, id: BlockId, hash: BlockHash) {
        self.hashes.insert(id, hash);
        self.cached_in_order.push((hash, id));
    }

    fn release(&mut self, ids: &[BlockId]) {
        let mut first = Vec::new();
        for &id in ids {
            let references = self.references.get_mut(&id).unwrap();
            *references -= 1;
            if *references > 0 {
                continue;
            }
            if self.hashes.contains_key(&id) {
                self.free.push_back(id);
            } else {
                first.push(id);
            }
        }
        for id in first.into_iter().rev() {
            self.free.push_front(id);
        }
    }

    fn reset(&mut self) -> bool {
        if self.free.len() != self.references.len() {
            return false;
        }
        self.hashes.clear();
        self.cached_in_order.clear();
        true
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate,
    CacheNewest(u32),
    LookUp(u32),
    ReleaseSome(usize, usize),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Allocate),
        5 => (0_u32..8).prop_map(Op::CacheNewest),
        5 => (0_u32..8).prop_map(Op::LookUp),
        4 => (0_usize..16, 1_usize..6).prop_map(|(from, count)| Op::ReleaseSome(from, count)),
        1 => Just(Op::Reset),
    ]
}

fn free_list(pool: &BlockPool) -> Vec<BlockId> {
    let mut ids = Vec::new();
    let mut id = pool.head;
    while id != NONE {
        ids.push(id);
        id = pool.block(id).next;
    }
    ids
}

fn check_invariants(pool: &BlockPool, held: &[BlockId]) {
    let free = free_list(pool);
    assert_eq!(free.len(), pool.free_blocks() as usize);
    let distinct: HashSet<BlockId> = free.iter().copied().collect();
    assert_eq!(distinct.len(), free.len(), "a block is on the free list twice");
    for id in 0..pool.capacity() {
        let references = held.iter().filter(|&&other| other == id).count();
        assert_eq!(pool.block(id).references as usize, references, "block {id}");
        assert_eq!(distinct.contains(&id), references == 0, "block {id} is lost or shared");
    }
}

proptest! {
    #[test]
    fn agrees_with_a_naive_pool(blocks in 1_u32..12, ops in prop::collection::vec(op(), 1..200)) {
        let mut pool = BlockPool::new(blocks);
        let mut naive = Naive::new(blocks);
        let mut held: Vec<BlockId> = Vec::new();
        for op in ops {
            match op {
                Op::Allocate => {
                    let got = pool.allocate();
                    prop_assert_eq!(got, naive.allocate());
                    held.extend(got.map(|(id, _)| id));
                }
                Op::CacheNewest(name) => {
                    if let Some(&id) = held.last().filter(|id| !naive.hashes.contains_key(id)) {
                        pool.cache(id, hash(name));
                        naive.cache(id, hash(name));
                    }
                }
                Op::LookUp(name) => {
                    let found = pool.lookup(&hash(name));
                    prop_assert_eq!(found, naive.lookup(&hash(name)));
                    if let Some(id) = found {
                        pool.retain(id);
                        naive.retain(id);
                        held.push(id);
                    }
                }
                Op::ReleaseSome(from, count) => {
                    let from = from.min(held.len());
                    let to = (from + count).min(held.len());
                    let ids: Vec<BlockId> = held.drain(from..to).rev().collect();
                    pool.release(ids.iter().copied());
                    naive.release(&ids);
                }
                Op::Reset => prop_assert_eq!(pool.reset(), naive.reset()),
            }
            check_invariants(&pool, &held);
            let free: Vec<BlockId> = naive.free.iter().copied().collect();
            prop_assert_eq!(free_list(&pool), free);
        }
    }
}

#[test]
fn tails_are_evicted_before_heads_and_older_chains_before_newer() {
    let mut pool = BlockPool::new(4);
    for chain in [[0, 1], [2, 3]] {
        let ids: Vec<BlockId> = chain.iter().map(|_| pool.allocate().unwrap().0).collect();
        for (&id, name) in ids.iter().zip(chain) {
            pool.cache(id, hash(name));
        }
        pool.release(ids.into_iter().rev());
    }
    let evicted: Vec<_> = (0..4).map(|_| pool.allocate().unwrap().1).collect();
    assert_eq!(evicted, [1, 0, 3, 2].map(|name| Some(hash(name))));
    assert_eq!(pool.allocate(), None);
}

#[test]
fn copies_of_a_hash_are_evicted_one_by_one() {
    let mut pool = BlockPool::new(2);
    let ids: Vec<BlockId> = (0..2).map(|_| pool.allocate().unwrap().0).collect();
    ids.iter().for_each(|&id| pool.cache(id, hash(7)));
    pool.release(ids);
    assert_eq!(pool.allocate().unwrap().1, Some(hash(7)));
    assert!(pool.lookup(&hash(7)).is_some());
    assert_eq!(pool.allocate().unwrap().1, Some(hash(7)));
    assert!(pool.lookup(&hash(7)).is_none());
}

#[test]
fn a_reset_is_refused_while_blocks_are_in_use() {
    let mut pool = BlockPool::new(2);
    let (id, _) = pool.allocate().unwrap();
    pool.cache(id, hash(1));
    assert!(!pool.reset());
    pool.release([id]);
    assert!(pool.reset());
    assert_eq!((pool.lookup(&hash(1)), pool.cached_hashes()), (None, 0));
    assert_eq!(pool.allocate().unwrap().1, None);
}
