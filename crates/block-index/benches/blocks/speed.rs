//! Apply, lookup, churn, bytes and removal, per workload.

use block_index::Matches;

use crate::latency::{Latency, measure};
use crate::meter::{cpu_ns, heap, median};
use crate::ours::Ours;
use crate::workload::{self, Workload};

pub fn run(names: &[String]) {
    let all: Vec<String> = workload::NAMES.iter().map(|name| (*name).to_owned()).collect();
    for name in if names.is_empty() { &all } else { names } {
        if let Some(workload) = workload::make(name, 1) {
            one(name, &workload);
        }
    }
}

/// Looks up for three seconds of CPU time, to be profiled.
pub fn lookups(name: &str) {
    let Some(workload) = workload::make(name, 1) else { return };
    let mut ours = Ours::new(&workload);
    ours.apply(&workload.build);
    let mut found = Matches::new();
    let (begin, mut count) = (cpu_ns(), 0_u64);
    while cpu_ns() - begin < 3_000_000_000 {
        for query in &workload.queries {
            std::hint::black_box(ours.grouped(*query, &mut found));
        }
        count += workload.queries.len() as u64;
    }
    println!(
        "{name}: {:.0} ns a lookup, the query's own misses included",
        (cpu_ns() - begin) as f64 / count as f64
    );
}

fn one(name: &str, workload: &Workload) {
    let mut ours = Ours::new(workload);
    let before = heap();
    let ns = ours.apply(&workload.build);
    let grown = heap() - before;
    let rate = |blocks: usize, ns: u64| blocks as f64 * 1e3 / ns as f64;
    println!(
        "{name}: {} memberships, {} runs; apply {:.1} M blocks/s; {:.1} heap bytes per membership ({:.1} by own count)",
        workload.memberships,
        ours.index.stats().runs,
        rate(Workload::blocks(&workload.build), ns),
        grown as f64 / workload.memberships as f64,
        ours.index.stats().bytes as f64 / workload.memberships as f64,
    );
    let touch = |query| ours.query(query).iter().fold(0, |acc, key| acc ^ key.get());
    let mut found = Matches::new();
    let show = |what: &str, latency: Latency| {
        println!("  {what}: mean {:.0} ns, p50 {}, p99 {}", latency.mean, latency.p50, latency.p99);
    };
    show("lookup, each holder", measure(&workload.queries, touch, |query| ours.each(query, &mut found)));
    show("lookup, grouped", measure(&workload.queries, touch, |query| ours.grouped(query, &mut found)));
    if !workload.churn.is_empty() {
        let blocks = Workload::blocks(&workload.churn);
        let mut rates: Vec<f64> = (0..3).map(|_| rate(blocks, ours.apply(&workload.churn))).collect();
        println!("  churn {:.1} M blocks/s", median(&mut rates));
    }
    let mut removals: Vec<f64> =
        (0..workload.holders.min(8)).map(|at| ours.remove_holder(at as usize) as f64 / 1e6).collect();
    for at in 8..workload.holders {
        ours.remove_holder(at as usize);
    }
    let left = heap().saturating_sub(before);
    let stats = ours.index.stats();
    println!(
        "  remove a holder: {:.3} ms; {:.1} % of the heap left after all; {} splits, {} merges, {} refused",
        median(&mut removals),
        left as f64 * 100.0 / grown as f64,
        stats.splits,
        stats.merges,
        ours.refused,
    );
}
