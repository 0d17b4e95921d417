//! Readers beside a writer at work.

use std::sync::atomic::{AtomicBool, Ordering};

use block_index::Matches;
use identity::BlockKey;

use crate::latency::cpu_p99;
use crate::ours::Ours;
use crate::workload;

pub fn run(name: &str) {
    let Some(workload) = workload::make(name, 1) else { return };
    let mut ours = Ours::new(&workload);
    ours.apply(&workload.build);
    let (reader, queries) = (ours.reader.clone(), ours.query_keys.clone());
    let find = |(from, len): (usize, usize), found: &mut Matches| {
        let keys: &[BlockKey] = &queries[from..from + len];
        reader.matches(keys, found);
        found.groups().len()
    };
    let mut found = Matches::new();
    let mut done = 0;
    let go_on = || {
        done += 1;
        done <= workload.queries.len() * 8
    };
    let quiet = cpu_p99(&workload.queries, go_on, |query| find(query, &mut found));
    let before = reader.retries();
    let stop = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut found = Matches::new();
            cpu_p99(&workload.queries, || !stop.load(Ordering::Relaxed), |query| find(query, &mut found))
        });
        let ns: u64 = (0..20).map(|_| ours.apply(&workload.churn)).sum();
        stop.store(true, Ordering::Relaxed);
        println!(
            "{name}: writer beside a reader: {:.1} M blocks/s",
            workload::Workload::blocks(&workload.churn) as f64 * 2e4 / ns as f64
        );
        busy.join().unwrap()
    });
    let retries = reader.retries() - before;
    println!(
        "  quiet: p50 {} ns, p99 {} ns over {} lookups (thread CPU, clock included)",
        quiet.0, quiet.1, quiet.2
    );
    println!("  busy:  p50 {} ns, p99 {} ns over {} lookups", busy.0, busy.1, busy.2);
    println!(
        "  p99 ratio {:.2}; {retries} retries, {:.4} % of lookups",
        f64::from(busy.1) / f64::from(quiet.1),
        retries as f64 * 100.0 / busy.2 as f64
    );
}
