//! Reproducible chance.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A seeded sequence of random numbers (`SplitMix64`, Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Makes the dice of one part of a world, so that no part's rolls depend on how often others roll.
    pub(crate) fn of(seed: u64, part: &str) -> Self {
        Self(xxh3_64_with_seed(part.as_bytes(), seed))
    }

    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % below.max(1)
    }

    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.roll(1000) < permille
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }

    /// Rolls a time below `max_ms` milliseconds.
    pub(crate) fn ms(&mut self, max_ms: u64) -> Duration {
        Duration::from_millis(self.roll(max_ms))
    }
}
