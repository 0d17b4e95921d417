//! The step from one block key to the next: xxh3-64 of sixteen bytes, with everything constant folded.
//!
//! A chain is bound by the latency of its steps, so what does not depend on the key before stays off that path. The
//! arithmetic is that of `XXH3_len_9to16_64b` of xxHash 0.8 with the default secret and seed 0; a test compares it with
//! the general function.

/// Bytes 24…31 and 32…39 of the default secret, combined.
const FLIP_LOW: u64 = 0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb;

/// Bytes 40…47 and 48…55 of the default secret, combined.
const FLIP_HIGH: u64 = 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8;

/// Multiplier of the final mixing.
const MIX: u64 = 0x1656_6791_9e37_79f9;

/// Bytes hashed.
const LEN: u64 = 16;

/// Returns xxh3-64 of the two words, little-endian.
pub(crate) fn step(before: u64, local: u64) -> u64 {
    let high = local ^ FLIP_HIGH;
    let addend = high.wrapping_add(LEN);
    let low = before ^ FLIP_LOW;
    let product = u128::from(low) * u128::from(high);
    #[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    let sum = low.swap_bytes().wrapping_add(addend).wrapping_add(folded);
    let mixed = (sum ^ (sum >> 37)).wrapping_mul(MIX);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    proptest! {
        #[test]
        fn step_equals_the_general_function(before in any::<u64>(), local in any::<u64>()) {
            let mut bytes = before.to_le_bytes().to_vec();
            bytes.extend(local.to_le_bytes());
            prop_assert_eq!(super::step(before, local), xxh3_64(&bytes));
        }
    }
}
