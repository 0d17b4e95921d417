//! Readers beside a writer: every depth in an answer is one that the holder had during the lookup.
//!
//! The writer makes a recorded sequence of changes and publishes how many it has begun and finished. A reader notes both
//! around each lookup and asks the model which depths each holder had from the last change finished before it began to
//! the last one begun before it ended. A store is one step; a removal goes through one state for each of its blocks.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail by panicking, and its sizes are small"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use block_index::{HolderId, Limits, Matches};
use identity::BlockKey;

const HOLDERS: usize = 40;
const CHAINS: usize = 24;
const STEPS: usize = 30_000;

/// `SplitMix64`.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 33) as usize % bound
    }
}

/// Prompts that share beginnings: chain `c` has those of `c / 4` and of `c / 12`.
fn chains() -> Vec<Vec<BlockKey>> {
    let key = |at: u64, names: &[u64]| {
        let mut word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851;
        for name in names {
            word = (word ^ name).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31);
        }
        BlockKey::new(word)
    };
    let chain = |chain: u64| {
        let names = |at: u64| -> Vec<u64> {
            if at < 20 {
                vec![chain / 12]
            } else if at < 50 {
                vec![chain / 12, chain / 4 + 9]
            } else {
                vec![chain / 12, chain / 4 + 9, chain + 99]
            }
        };
        (0..80).map(|at| key(at, &names(at))).collect()
    };
    (0..CHAINS as u64).map(chain).collect()
}

/// A change: a holder's depth in one chain goes to `depth`, stored or removed.
#[derive(Clone, Copy)]
struct Step {
    holder: usize,
    chain: usize,
    depth: usize,
}

/// Depths of all holders in all chains, after each step: `[step][holder][chain]`, only changes kept.
struct History {
    steps: Vec<Step>,
    /// Per holder: (step, depths in all chains), oldest first.
    depths: Vec<Vec<(usize, Vec<u8>)>>,
}

fn history(chains: &[Vec<BlockKey>]) -> History {
    let mut rng = Rng(11);
    let mut now = vec![vec![0_u8; CHAINS]; HOLDERS];
    let mut depths: Vec<Vec<(usize, Vec<u8>)>> = now.iter().map(|depths| vec![(0, depths.clone())]).collect();
    let mut steps = Vec::new();
    for at in 1..=STEPS {
        let (holder, chain) = (rng.below(HOLDERS), rng.below(CHAINS));
        let depth = rng.below(chains[0].len() + 1);
        steps.push(Step { holder, chain, depth });
        let before = now[holder][chain] as usize;
        for other in 0..CHAINS {
            let shared =
                chains[other].iter().zip(&chains[chain]).take_while(|(left, right)| left == right).count();
            let had = now[holder][other] as usize;
            // What is stored reaches as far as the chains agree; what is removed takes along what follows it.
            let has = if depth >= before {
                had.max(shared.min(depth))
            } else if shared > depth {
                had.min(depth)
            } else {
                had
            };
            now[holder][other] = has as u8;
        }
        depths[holder].push((at, now[holder].clone()));
    }
    History { steps, depths }
}

impl History {
    /// Tells whether a holder had this depth in a chain at some time from after `from` steps to after `upto` steps.
    fn had(&self, holder: usize, chain: usize, depth: u32, (from, upto): (usize, usize)) -> bool {
        let states = &self.depths[holder];
        let first = states.partition_point(|(step, _)| *step <= from) - 1;
        let mut before: Option<u8> = None;
        for (step, depths) in &states[first..] {
            if *step > upto {
                break;
            }
            let now = depths[chain];
            // Between two states: a removal passes through the depths in between.
            let passed = before.is_some_and(|before| u32::from(now) <= depth && depth <= u32::from(before));
            if u32::from(now) == depth || passed {
                return true;
            }
            before = Some(now);
        }
        false
    }
}

#[test]
fn every_depth_is_one_the_holder_had_meanwhile() {
    let chains = chains();
    let history = history(&chains);
    let (mut index, reader) = block_index::new(Limits { holders_max: HOLDERS as u32, blocks_max: 10_000 });
    let ids: Vec<HolderId> = (0..HOLDERS).map(|_| index.add_holder().unwrap()).collect();
    let (begun, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let looked = std::thread::scope(|scope| {
        let looking: Vec<_> = (0..2)
            .map(|seed| {
                let (reader, ids, history, chains) = (reader.clone(), &ids, &history, &chains);
                let (begun, finished) = (&begun, &finished);
                scope.spawn(move || {
                    let (mut rng, mut found, mut lookups) = (Rng(seed), Matches::new(), 0_usize);
                    while finished.load(Ordering::SeqCst) < STEPS {
                        let chain = rng.below(CHAINS);
                        let from = finished.load(Ordering::SeqCst);
                        reader.matches(&chains[chain], &mut found);
                        let upto = begun.load(Ordering::SeqCst);
                        for (holder, id) in ids.iter().enumerate() {
                            let depth = found.depth_of(*id);
                            let had = history.had(holder, chain, depth, (from, upto));
                            assert!(
                                had,
                                "holder {holder} had no depth {depth} in chain {chain} from {from} to {upto}"
                            );
                        }
                        lookups += 1;
                    }
                    lookups
                })
            })
            .collect();
        for (at, Step { holder, chain, depth }) in history.steps.iter().copied().enumerate() {
            begun.store(at + 1, Ordering::SeqCst);
            let (keys, id) = (&chains[chain], ids[holder]);
            let had = history.depths[holder].partition_point(|(step, _)| *step <= at) - 1;
            let had = history.depths[holder][had].1[chain] as usize;
            if depth >= had {
                index.store(id, had.checked_sub(1).map(|last| keys[last]), &keys[had..depth]).unwrap();
            } else {
                // As an agent nets them: all that continues a removed block, deepest first, is the index's to find.
                let gone: Vec<BlockKey> = keys[depth..had].iter().rev().copied().collect();
                index.remove(id, &gone);
            }
            if at % 64 == 0 {
                index.sweep(16);
            }
            finished.store(at + 1, Ordering::SeqCst);
        }
        looking.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    index.check().unwrap();
    assert!(looked > 0);
    let stats = index.stats();
    assert!(stats.splits > 0 && stats.merges > 0, "{stats:?}");
}
