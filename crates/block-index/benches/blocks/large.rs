//! A large index: chats over 100 holders until so many distinct blocks are stored.

use block_index::{Limits, Matches};
use identity::BlockKey;

use crate::latency::measure;
use crate::meter::{cpu_ns, heap};
use crate::workload::Rng;

const HOLDERS: u64 = 100;

pub fn run(blocks: usize) {
    let limits = Limits { holders_max: 100, blocks_max: u32::try_from(blocks + (1 << 20)).unwrap() };
    let (mut index, reader) = block_index::new(limits);
    let ids: Vec<_> = (0..HOLDERS).map(|_| index.add_holder().unwrap()).collect();
    let before = heap();
    let (mut busy, mut applied, mut chats) = (0_u64, 0_usize, Vec::new());
    let mut chat = 0_u64;
    while (index.stats().blocks as usize) < blocks {
        let begun = chat;
        let batch: Vec<(u64, Vec<BlockKey>)> = (0..256).map(|at| (begun + at, keys_of(begun + at))).collect();
        chat += 256;
        let begin = cpu_ns();
        for (chat, keys) in &batch {
            for holder in holders_of(*chat) {
                let mut parent = None;
                for turn in keys.chunks(64) {
                    index.store(ids[holder], parent, turn).unwrap();
                    parent = turn.last().copied();
                }
                applied += keys.len();
            }
        }
        busy += cpu_ns() - begin;
        chats.push(begun);
    }
    let (grown, stats) = (heap() - before, index.stats());
    println!(
        "large: {} blocks, {} memberships over {HOLDERS} holders; apply {:.1} M memberships/s; {:.1} bytes per block, {:.1} per membership",
        stats.blocks,
        stats.memberships,
        applied as f64 * 1e3 / busy as f64,
        grown as f64 / f64::from(stats.blocks),
        grown as f64 / stats.memberships as f64,
    );
    let mut rng = Rng(5);
    let prompts: Vec<BlockKey> = (0..20_000).flat_map(|_| keys_of(rng.word() % chat)).collect();
    let queries: Vec<(usize, usize)> =
        (0..20_000).map(|at| (at * 300, 300)).filter(|(at, _)| at + 300 <= prompts.len()).collect();
    let mut found = Matches::new();
    let touch =
        |(from, len): (usize, usize)| prompts[from..from + len].iter().fold(0, |acc, key| acc ^ key.get());
    let latency = measure(&queries, touch, |(from, len)| {
        reader.matches(&prompts[from..from + len], &mut found);
        found.groups().len()
    });
    println!("  lookup of 300 blocks: mean {:.0} ns, p50 {}, p99 {}", latency.mean, latency.p50, latency.p99);
}

/// The blocks of a chat: one of 64 beginnings of 40 blocks, then 260 of its own.
fn keys_of(chat: u64) -> Vec<BlockKey> {
    let mut key = Rng(chat % 64).word();
    let mut keys = Vec::with_capacity(300);
    for at in 0..300_u64 {
        let own = if at < 40 { 0 } else { chat + 1 };
        key = Rng(key ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at << 52).word();
        keys.push(BlockKey::new(key));
    }
    keys
}

fn holders_of(chat: u64) -> Vec<usize> {
    let mut rng = Rng(chat ^ 0x6c61);
    let first = rng.below(HOLDERS as usize);
    let count = 1 + rng.below(3);
    (0..count).map(|at| (first + at * 37) % HOLDERS as usize).collect()
}
