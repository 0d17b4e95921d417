//! Ranges of bits in words.

/// Returns the first place at or after `from` where `count` bits are zero.
pub(crate) fn find_zeros(words: &[u64], from: u32, count: u32) -> Option<u32> {
    let end = bits(words);
    let mut start = from;
    while start + count <= end {
        let zeros = count_zeros(words, start, count);
        if zeros == count {
            return Some(start);
        }
        start += zeros;
        start += count_ones(words, start);
    }
    None
}

/// Counts the zero bits from `from` on, up to the first one and at most `max`.
pub(crate) fn count_zeros(words: &[u64], from: u32, max: u32) -> u32 {
    run_length(words, from, max, |word| word)
}

fn count_ones(words: &[u64], from: u32) -> u32 {
    run_length(words, from, bits(words), |word| !word)
}

fn run_length(words: &[u64], from: u32, max: u32, flip: impl Fn(u64) -> u64) -> u32 {
    let max = max.min(bits(words).saturating_sub(from));
    let mut count = 0;
    let mut bit = from % 64;
    for word in words.get((from / 64) as usize..).unwrap_or_default() {
        let zeros = (flip(*word) >> bit).trailing_zeros().min(64 - bit);
        count += zeros;
        if zeros < 64 - bit || count >= max {
            break;
        }
        bit = 0;
    }
    count.min(max)
}

/// Sets `count` bits from `from` on.
pub(crate) fn set(words: &mut [u64], from: u32, count: u32) {
    each_word(words, from, count, |word, mask| *word |= mask);
}

/// Clears `count` bits from `from` on.
pub(crate) fn clear(words: &mut [u64], from: u32, count: u32) {
    each_word(words, from, count, |word, mask| *word &= !mask);
}

fn each_word(words: &mut [u64], from: u32, count: u32, change: impl Fn(&mut u64, u64)) {
    let (mut at, end) = (from, from + count);
    while at < end {
        let upto = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (upto - at))) << (at % 64);
        if let Some(word) = words.get_mut((at / 64) as usize) {
            change(word, mask);
        }
        at = upto;
    }
}

fn bits(words: &[u64]) -> u32 {
    u32::try_from(words.len() * 64).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{clear, count_zeros, find_zeros, set};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_equal_a_bit_by_bit_model(changes in prop::collection::vec((0_u32..192, 0_u32..130, any::<bool>()), 0..20), from in 0_u32..192, count in 1_u32..70) {
            let mut words = [0_u64; 3];
            let mut model = [false; 192];
            for (from, count, on) in changes {
                let count = count.min(192 - from);
                if on { set(&mut words, from, count) } else { clear(&mut words, from, count) }
                for bit in from..from + count {
                    model[bit as usize] = on;
                }
            }
            let zeros = (from..192).take_while(|bit| !model[*bit as usize]).fold(0, |count, _| count + 1);
            prop_assert_eq!(count_zeros(&words, from, count), zeros.min(count));
            let place = (from..192).find(|place| {
                place + count <= 192 && model[*place as usize..(place + count) as usize].iter().all(|on| !on)
            });
            prop_assert_eq!(find_zeros(&words, from, count), place);
        }
    }
}
