//! How long lookups take.

use std::time::Instant;

use crate::meter::{cpu_ns, median, quantile};

/// Nanoseconds per lookup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    pub mean: f64,
    pub p50: u32,
    pub p99: u32,
}

/// Times lookups one by one after `touch` brought the query near: the mean without the slowest hundredth (which other
/// processes cause), as the median over rounds.
pub fn measure(
    queries: &[(usize, usize)],
    touch: impl Fn((usize, usize)) -> u64,
    mut find: impl FnMut((usize, usize)) -> usize,
) -> Latency {
    let overhead = overhead();
    let (mut means, mut all) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let mut times: Vec<u32> = Vec::with_capacity(queries.len());
        for query in queries {
            std::hint::black_box(touch(*query));
            let begin = Instant::now();
            std::hint::black_box(find(*query));
            times.push((begin.elapsed().as_nanos() as u32).saturating_sub(overhead));
        }
        all.extend_from_slice(&times);
        quantile(&mut times, 0.5);
        times.truncate(times.len() * 99 / 100);
        means.push(times.iter().map(|time| f64::from(*time)).sum::<f64>() / times.len() as f64);
    }
    Latency { mean: median(&mut means), p50: quantile(&mut all, 0.5), p99: quantile(&mut all, 0.99) }
}

/// Times lookups by thread CPU time, a few at a time because that clock is a system call; answers p99 per lookup.
pub fn cpu_p99(
    queries: &[(usize, usize)],
    mut go_on: impl FnMut() -> bool,
    mut find: impl FnMut((usize, usize)) -> usize,
) -> (u32, u32, u64) {
    let mut times = Vec::new();
    let mut at = 0;
    while go_on() && times.len() < 4 << 20 {
        let query = queries[at % queries.len()];
        at += 1;
        let begin = cpu_ns();
        std::hint::black_box(find(query));
        times.push((cpu_ns() - begin) as u32);
    }
    let count = times.len() as u64;
    (quantile(&mut times, 0.5), quantile(&mut times, 0.99), count)
}

fn overhead() -> u32 {
    let mut empty: Vec<u32> = (0..20_000)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(0);
            begin.elapsed().as_nanos() as u32
        })
        .collect();
    quantile(&mut empty, 0.5)
}
