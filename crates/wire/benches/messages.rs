//! What messages cost: size, encoding, decoding.
//!
//! ```text
//! cargo bench -p wire --bench messages
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_types,
    reason = "a measuring program: it reads clocks, prints, and may fail by panicking"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use identity::{BlockKey, Incarnation, KeySetDigest, ModelName, Rank, WorkerId};
use membership::{Beat, Change, Delta, Run};
use wire::kv;
use wire::sync::{Request, Response};

fn main() {
    println!("{:24} {:>10} {:>12} {:>12}", "message", "bytes", "encode", "decode");
    for keys in [1, 64, 1024] {
        let delta = delta(keys);
        let bytes = kv::encode_delta(&delta).unwrap();
        let encode = timed(|| kv::encode_delta(black_box(&delta)).unwrap());
        let decode = timed(|| kv::decode(black_box(&bytes)).unwrap());
        row(&format!("delta, {keys} keys"), bytes.len(), encode, decode);
    }
    let beat = beat();
    let bytes = kv::encode_beat(&beat).unwrap();
    let encode = timed(|| kv::encode_beat(black_box(&beat)).unwrap());
    row("beat", bytes.len(), encode, timed(|| kv::decode(black_box(&bytes)).unwrap()));
    let buckets = Request::Buckets { incarnation: Incarnation::default(), digest: KeySetDigest::default() };
    let bytes = buckets.encode().unwrap();
    let encode = timed(|| black_box(&buckets).encode().unwrap());
    row("request for buckets", bytes.len(), encode, timed(|| Request::decode(black_box(&bytes)).unwrap()));
    snapshot(2_000_000, 64);
    snapshot(2_000_000, 4);
}

/// Measures a whole set: cut into chunks, and read again.
fn snapshot(keys: u64, run: u64) {
    let runs: Vec<Run> = (0..keys / run)
        .map(|number| Run {
            parent: Some(BlockKey::new(number)),
            keys: (0..run).map(|key| BlockKey::new(number << 8 | key)).collect(),
        })
        .collect();
    let start = Instant::now();
    let chunks = Response::chunks(runs).unwrap();
    let encode = start.elapsed();
    let start = Instant::now();
    for chunk in &chunks {
        black_box(Response::decode(chunk).unwrap());
    }
    let decode = start.elapsed();
    let bytes = chunks.iter().map(bytes::Bytes::len).sum();
    row(&format!("{keys} keys by {run}"), bytes, encode, decode);
}

fn row(name: &str, bytes: usize, encode: Duration, decode: Duration) {
    println!("{name:24} {bytes:>10} {:>12} {:>12}", format!("{encode:.1?}"), format!("{decode:.1?}"));
}

/// Returns the median time of a call, from batches of calls.
fn timed<T>(mut call: impl FnMut() -> T) -> Duration {
    const BATCH: u32 = 200;
    let mut batches: Vec<Duration> = (0..51)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                black_box(call());
            }
            start.elapsed() / BATCH
        })
        .collect();
    batches.sort_unstable();
    batches.get(batches.len() / 2).copied().unwrap_or_default()
}

fn delta(keys: u64) -> Delta {
    let keys = (0..keys).map(|key| BlockKey::new(key.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    Delta {
        scheme: identity::SCHEME.to_owned(),
        model: ModelName::new("tiny-vl"),
        worker: WorkerId::new("w0"),
        rank: Rank(0),
        incarnation: Incarnation { started_ms: 1, nonce: 2 },
        seq: 3,
        changes: vec![Change::Stored { parent: Some(BlockKey::new(4)), keys, media: Vec::new() }],
    }
}

fn beat() -> Beat {
    Beat {
        scheme: identity::SCHEME.to_owned(),
        model: ModelName::new("tiny-vl"),
        worker: WorkerId::new("w0"),
        rank: Rank(0),
        incarnation: Incarnation { started_ms: 1, nonce: 2 },
        seq: 3,
        blocks: 4,
        digest: 5,
        running: 6,
        waiting: 7,
        kv_usage: 0.5,
        engine_healthy: true,
        coverage: 1.0,
    }
}
