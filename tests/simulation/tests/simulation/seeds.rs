//! The seeds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::config;
use crate::invariant::Broken;
use crate::world::{Report, play};

/// Plays a seed in a runtime of its own, whose time passes only while everybody waits.
fn simulate(seed: u64) -> Result<Report, Broken> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcome = runtime.block_on(play(seed));
    runtime.shutdown_background();
    outcome
}

#[test]
fn seeds_leave_every_cluster_true() {
    config::show_log();
    let (seeds, next) = (config::seeds(), AtomicUsize::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from).min(seeds.len().max(1));
    let work = || {
        let mut played = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            played.push((*seed, simulate(*seed)));
        }
        played
    };
    let mut played = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    played.sort_by_key(|(seed, _)| *seed);
    let mut settled: Vec<(Duration, u64)> = Vec::new();
    let (mut requests, mut failed, mut broken) = (0, 0, 0);
    for (seed, outcome) in &played {
        match outcome {
            Ok(report) => {
                settled.push((report.settled, *seed));
                (requests, failed) = (requests + report.requests, failed + report.failed);
            }
            Err(what) => {
                broken += 1;
                println!("seed {seed}: {what}\nagain: {}\n", config::replay(*seed));
            }
        }
    }
    settled.sort_unstable();
    if let (Some(worst), Some(median)) = (settled.last(), settled.get(settled.len() / 2)) {
        let (count, (slowest, seed)) = (settled.len(), worst);
        println!(
            "{count} seeds, {requests} requests ({failed} not placed): settled after {:?} at the median, {slowest:?} at worst (seed {seed})",
            median.0
        );
    }
    assert_eq!(broken, 0, "of {} seeds", played.len());
}

#[test]
fn the_same_seed_goes_the_same_way() {
    for seed in 0..3 {
        let (first, second) = (simulate(seed).unwrap(), simulate(seed).unwrap());
        assert_eq!(first.sent, second.sent, "seed {seed}");
        assert!(first.sent.values().all(|(count, _)| *count > 0) || first.requests > 0);
    }
}
