//! Reproducible chance for seeded faults.

use parking_lot::Mutex;

/// A seeded sequence of random numbers (`SplitMix64`, Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    pub(crate) fn reseed(&self, seed: u64) {
        *self.0.lock() = seed;
    }

    pub(crate) fn roll(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = *state;
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Answers yes in `permille` of a thousand cases.
    pub(crate) fn chance(&self, permille: u16) -> bool {
        permille > 0 && self.roll() % 1000 < u64::from(permille)
    }
}
