//! What following an engine costs: per block of its events, in memory, and for a checkpoint and a copy.
//!
//! ```text
//! cargo bench -p engine-events --bench translation [-- BLOCKS]      default: 1,000,000
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::disallowed_types,
    reason = "a measuring program: it reads clocks, prints, and may fail by panicking"
)]

use std::hint::black_box;
use std::time::Instant;

use engine_events::{Config, Record, Translator, vllm};
use identity::Incarnation;

const SIZE: u32 = 16;
/// Blocks of one prompt, stored by one event behind a shared beginning of as many.
const PROMPT: u64 = 64;

/// A stored event of vLLM's map form.
fn stored(first: u64, parent: Option<u64>) -> Vec<u8> {
    let word = |bytes: &mut Vec<u8>, number: u64| {
        bytes.push(0xcf);
        bytes.extend_from_slice(&number.to_be_bytes());
    };
    let array = |bytes: &mut Vec<u8>, length: u64| {
        bytes.push(0xdd);
        bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    };
    let mut bytes =
        b"\x93\xcb\x41\xda\xc3\x12\xaa\xd0\x02\x27\x91\x87\xa4type\xabBlockStored\xacblock_hashes".to_vec();
    array(&mut bytes, PROMPT);
    (first..first + PROMPT).for_each(|hash| word(&mut bytes, hash));
    bytes.extend_from_slice(b"\xb1parent_block_hash");
    match parent {
        Some(parent) => word(&mut bytes, parent),
        None => bytes.push(0xc0),
    }
    bytes.extend_from_slice(b"\xa9token_ids");
    array(&mut bytes, PROMPT * u64::from(SIZE));
    for token in 0..PROMPT * u64::from(SIZE) {
        let token = u16::try_from((first.wrapping_mul(2_654_435_761) + token) % 50_000).unwrap();
        bytes.push(0xcd);
        bytes.extend_from_slice(&token.to_be_bytes());
    }
    bytes.extend_from_slice(b"\xaablock_size\x10\xa6medium\xa3GPU\xaaextra_keys");
    array(&mut bytes, PROMPT);
    bytes.extend(std::iter::repeat_n(0xc0, usize::try_from(PROMPT).unwrap()));
    bytes.push(0x00);
    bytes
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn timed<T>(what: &str, blocks: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    let each = elapsed.as_nanos() as f64 / blocks as f64;
    println!("{what:<28} {:>9.1} ms {each:>9.1} ns per block", elapsed.as_secs_f64() * 1e3);
    result
}

fn main() {
    let blocks: u64 = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let events: Vec<Vec<u8>> = (0..blocks / PROMPT)
        .map(|event| stored(1 + event * PROMPT, (event % 8 != 0).then(|| event / 8 * 8 * PROMPT + PROMPT)))
        .collect();
    let bytes: usize = events.iter().map(Vec::len).sum();
    println!(
        "{blocks} blocks of {SIZE} tokens in {} events, {} bytes per block",
        events.len(),
        bytes as u64 / blocks
    );
    let batches = timed("decode", blocks, || {
        events.iter().map(|event| vllm::decode(event).unwrap()).collect::<Vec<_>>()
    });
    let before = resident_bytes();
    let mut translator = Translator::new(Config { block_size: SIZE, ..Config::default() });
    let changes =
        timed("apply", blocks, || batches.iter().map(|batch| translator.apply(batch).len()).sum::<usize>());
    let after = resident_bytes();
    println!(
        "{} keys, {changes} changes, {} bytes per block",
        translator.blocks(),
        (after - before) / blocks
    );
    let copy = timed("copy keys", blocks, || translator.copy());
    black_box(timed("copy into runs", blocks, || copy.into_runs()).len());
    let state = timed("copy state", blocks, || translator.checkpoint());
    let incarnation = Incarnation { started_ms: 1, nonce: 1 };
    let record = Record { incarnation, engine_started_ms: None, seq: 1, mark: None, state };
    let saved = timed("encode checkpoint", blocks, || record.to_bytes());
    println!("checkpoint of {} bytes per block", saved.len() as u64 / blocks);
    let read = timed("decode checkpoint", blocks, || Record::from_bytes(&saved).unwrap());
    let config = translator.config().clone();
    let restored = timed("restore", blocks, || Translator::restore(config, &read.state).unwrap());
    assert_eq!(restored.digest(), translator.digest());
}
