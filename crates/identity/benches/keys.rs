//! Block keys of a 16k-token prompt with four images, beside plain xxh3-64 of the same bytes.
//!
//! ```text
//! cargo bench -p identity --bench keys
//! ```
#![expect(
    unsafe_code,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measuring program: it reads a clock and prints"
)]

use std::hint::black_box;

use identity::{BlockKey, KeyCache, MediaKey, MediaSpan, Prompt, Segment, block_keys};
use xxhash_rust::xxh3::xxh3_64;

const TOKENS: u32 = 16_384;
const ROUNDS: usize = 400;

fn main() {
    let tokens: Vec<u32> = (0..TOKENS).map(|at| at.wrapping_mul(0x9e37_79b1) % 150_000).collect();
    let media: Vec<MediaSpan> = (0..4)
        .map(|item| MediaSpan { key: MediaKey::new(u64::from(item)), start: 500 + item * 4_000, len: 1_100 })
        .collect();
    let root = BlockKey::new(1);
    for block_size in [16_u32, 32, 64] {
        let bytes: &[u8] = bytemuck::cast_slice(&tokens);
        // The same bytes: a block's tokens, and the media keys after them.
        let contents: Vec<Vec<u32>> = contents(&tokens, &media, block_size);
        let blocks = || contents.iter().fold(0, |acc, block| acc ^ xxh3_64(bytemuck::cast_slice(block)));
        let whole = time(|| xxh3_64(black_box(bytes)));
        let plain = time(blocks);
        let keys = time(|| last(&block_keys(root, black_box(&tokens), &media, block_size)));
        let text = time(|| last(&block_keys(root, black_box(&tokens), &[], block_size)));
        let prompt = Prompt { root, tokens: &tokens, media: &media, block_size };
        let (mut cache, mut turn) = (KeyCache::new(1 << 20), 0);
        let cached = time(|| {
            turn += 1;
            let segments = [Segment { id: 1, tokens: 15_000 }, Segment { id: turn, tokens: TOKENS - 15_000 }];
            last(&cache.keys(&prompt, &segments))
        });
        println!(
            "block size {block_size}: keys {:.2} us, without images {:.2}; plain xxh3 {:.2} in blocks, {:.2} in one; \
             ratios {:.2} and {:.2}; all but 1,384 tokens known: {:.2} us",
            keys,
            text,
            plain,
            whole,
            keys / plain,
            keys / whole,
            cached,
        );
    }
}

fn contents(tokens: &[u32], media: &[MediaSpan], block_size: u32) -> Vec<Vec<u32>> {
    let blocks = tokens.chunks_exact(block_size as usize).zip((0_u32..).step_by(block_size as usize));
    let content = |(block, start): (&[u32], u32)| {
        let overlapping = media.iter().filter(|span| span.start < start + block_size && span.end() > start);
        let keys = overlapping.flat_map(|span| [span.key.get() as u32, (span.key.get() >> 32) as u32]);
        block.iter().copied().chain(keys).collect()
    };
    blocks.map(content).collect()
}

fn last(keys: &[BlockKey]) -> u64 {
    keys.last().map_or(0, |key| key.get())
}

/// Median CPU time of a call, in microseconds.
fn time(mut call: impl FnMut() -> u64) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = cpu_ns();
            for _ in 0..8 {
                black_box(call());
            }
            (cpu_ns() - begin) as f64 / 8e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(ROUNDS / 2).copied().unwrap_or(0.0)
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
