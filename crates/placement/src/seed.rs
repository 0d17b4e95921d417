//! Randomness from seeds, and hashes that every frontend computes alike.

use identity::Holder;

/// Spreads a word over 64 bits (the `SplitMix64` finaliser; Steele, Lea, Flood 2014).
pub(crate) const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Picks one of `count` by seed; 0 when `count` is.
pub(crate) fn pick(seed: u64, count: usize) -> usize {
    let count = u128::try_from(count).unwrap_or(u128::MAX);
    usize::try_from((u128::from(mix(seed)) * count) >> 64).unwrap_or(0)
}

/// Scores a holder for a subject: the highest score wins, alike on every frontend, and the loss of one holder moves
/// only its own subjects (rendezvous hashing; Thaler, Ravishankar 1996).
pub(crate) fn score(subject: u64, holder: &Holder) -> u64 {
    let name = holder.worker.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(subject ^ mix(name ^ u64::from(holder.rank.0)))
}
