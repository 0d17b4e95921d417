//! Tells prompts that no context can hold before they are tokenised whole.

/// Bytes per token up to which a text is simply tokenised: prose has four or five.
const BYTES_PER_TOKEN: usize = 8;
/// How many tokens the end of a cut text may cost beyond those that it has in the whole one.
const CUT_TOKENS_MAX: usize = 64;

/// Tells whether a text has more than `tokens_max` tokens, by tokenising beginnings of it that double.
///
/// Tokens do not reach far to their left, so a beginning has about the tokens it has in the whole; the work ends at the
/// first beginning that is too long by itself, however much follows. `count` gives none where it fails.
pub(crate) fn exceeds(text: &str, tokens_max: usize, count: impl Fn(&str) -> Option<usize>) -> bool {
    let limit = tokens_max.saturating_add(CUT_TOKENS_MAX);
    let mut bytes = tokens_max.saturating_mul(BYTES_PER_TOKEN).max(1);
    while bytes < text.len() {
        let beginning = text.get(..text.floor_char_boundary(bytes)).unwrap_or_default();
        match count(beginning) {
            Some(tokens) if tokens <= limit => bytes = bytes.saturating_mul(2),
            Some(_) => return true,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn reads_no_more_than_it_must() {
        let read = Cell::new(0);
        let words = |text: &str| {
            read.set(read.get() + text.len());
            Some(text.split_whitespace().count())
        };
        let check = |text: &str, expected: bool, read_max: usize| {
            read.set(0);
            assert_eq!(exceeds(text, 100, words), expected);
            assert!(read.get() <= read_max, "{} bytes read", read.get());
        };
        check(&"word ".repeat(160), false, 0);
        check(&"word ".repeat(1_000_000), true, 1600 + 800);
        check(&"wörter ".repeat(1_000_000), true, 1600 + 800 + 3200);
        check(&"far-longer-words-than-usual ".repeat(100), false, 2 * 2800);
        check(&"far-longer-words-than-usual ".repeat(100_000), true, 16 * 800);
        assert!(!exceeds(&"word ".repeat(1000), 100, |_| None));
    }
}
