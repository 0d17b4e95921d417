//! Every answer against the naive model: after the build, during churn, after runs went out and in, after removals.

use block_index::{Matches, Run};
use identity::BlockKey;

use crate::ours::Ours;
use crate::workload::{self, Naive, Workload};

pub fn run(wanted: usize) {
    let (mut asked, mut wrong, mut seed) = (0_usize, 0_usize, 1_u64);
    while asked < wanted {
        let large = seed % 16 == 0;
        let Some(workload) = workload::make(if large { "chat" } else { "small" }, seed) else { return };
        let (more, bad) = one(&workload, if large { 4 } else { 64 });
        asked += more;
        wrong += bad;
        seed += 1;
    }
    println!("exact: {asked} queries over {} workloads, {wrong} wrong", seed - 1);
    assert_eq!(wrong, 0, "the index disagrees with the model");
}

fn one(workload: &Workload, steps: usize) -> (usize, usize) {
    let (mut ours, mut naive) = (Ours::new(workload), Naive::new(workload.holders));
    let (mut asked, mut wrong) = (0, 0);
    let mut ask = |ours: &Ours, naive: &Naive| {
        let (more, bad) = compare(ours, naive, workload);
        asked += more;
        wrong += bad;
    };
    for events in [&workload.build, &workload.churn] {
        for chunk in events.chunks(events.len().div_ceil(steps).max(1)) {
            ours.apply(chunk);
            chunk.iter().for_each(|event| naive.apply(workload, event));
            ask(&ours, &naive);
        }
    }
    // Middle evictions, as the agent delivers them: the block with all that continue it, deepest first.
    for holder in 0..workload.holders {
        middle(&mut ours, &mut naive, workload, holder);
    }
    ask(&ours, &naive);
    for holder in &ours.ids.clone() {
        let runs: Vec<(Option<BlockKey>, Vec<BlockKey>)> =
            ours.index.runs(*holder).map(|run| (run.parent, run.keys.to_vec())).collect();
        ours.index.clear(*holder);
        let runs: Vec<Run<'_>> = runs.iter().map(|(parent, keys)| Run { parent: *parent, keys }).collect();
        ours.index.replace(*holder, &runs).unwrap();
    }
    ask(&ours, &naive);
    for holder in 0..workload.holders as usize / 2 {
        ours.remove_holder(holder);
        naive.0[holder].clear();
    }
    ask(&ours, &naive);
    ours.index.check().unwrap();
    (asked, wrong)
}

fn middle(ours: &mut Ours, naive: &mut Naive, workload: &Workload, holder: u32) {
    let query = workload.queries[holder as usize * 7 % workload.queries.len()];
    let keys = ours.query(query).to_vec();
    let depth = keys.iter().take_while(|key| naive.0[holder as usize].contains(&key.get())).count();
    let gone: Vec<BlockKey> = keys[depth / 2..depth].iter().rev().copied().collect();
    // What hangs below through other branches goes too.
    ours.index.remove(ours.ids[holder as usize], &gone);
    let kept: std::collections::HashSet<u64> =
        ours.index.runs(ours.ids[holder as usize]).flat_map(|run| run.keys).map(|key| key.get()).collect();
    for key in gone {
        naive.0[holder as usize].remove(&key.get());
    }
    // A removal never takes what does not continue a removed block, so only descendants may be missing.
    naive.0[holder as usize].retain(|key| kept.contains(key));
}

fn compare(ours: &Ours, naive: &Naive, workload: &Workload) -> (usize, usize) {
    let mut found = Matches::new();
    let mut wrong = 0;
    let step = if workload.holders > 16 { 40 } else { 1 };
    let mut asked = 0;
    for query in workload.queries.iter().step_by(step) {
        ours.reader.matches(ours.query(*query), &mut found);
        let mut answer: Vec<(u32, u32)> = found.iter().map(|(holder, depth)| (holder.get(), depth)).collect();
        answer.sort_unstable();
        let (from, len) = *query;
        wrong += usize::from(answer != naive.matches(&workload.query_keys[from..from + len]));
        asked += 1;
    }
    (asked, wrong)
}
