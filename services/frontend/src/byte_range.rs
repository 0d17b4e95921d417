//! Which bytes of a representation a request asks for (RFC 9110, sections 13 and 14).

use std::ops::Range;

use http::{HeaderMap, HeaderName, header};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it.
    Whole,
    /// A part; never empty.
    Part(Range<usize>),
    /// A part that is not there.
    Beyond,
    /// Nothing: the asker has it already.
    Nothing,
}

/// Reads the headers of a request for a representation of `len` bytes with a strong `etag`, quotes included. Several
/// ranges, and what is no range, are answered with the whole, as the standard allows.
pub(crate) fn asked(headers: &HeaderMap, etag: &str, len: usize) -> Asked {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(known) = text(header::IF_NONE_MATCH)
        && known
            .split(',')
            .any(|one| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == etag)
    {
        return Asked::Nothing;
    }
    if text(header::IF_RANGE).is_some_and(|condition| condition.trim() != etag) {
        return Asked::Whole;
    }
    let Some(range) = text(header::RANGE) else { return Asked::Whole };
    part(range, len).unwrap_or(Asked::Whole)
}

fn part(range: &str, len: usize) -> Option<Asked> {
    let (unit, spec) = range.split_once('=')?;
    let (first, last) = spec.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    if first.is_empty() {
        let suffix = number(last)?;
        return Some(if suffix == 0 || len == 0 {
            Asked::Beyond
        } else {
            Asked::Part(len.saturating_sub(suffix)..len)
        });
    }
    let first = number(first)?;
    let end = if last.is_empty() { len } else { number(last)?.saturating_add(1) };
    if end <= first && !last.is_empty() {
        return None;
    }
    Some(if first >= len { Asked::Beyond } else { Asked::Part(first..end.min(len)) })
}

/// Reads digits, and nothing else that a parser of numbers would take.
fn number(digits: &str) -> Option<usize> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(pairs: &[(HeaderName, &'static str)], expected: &Asked) {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let headers: HeaderMap = pairs.collect();
        assert_eq!(asked(&headers, "\"e\"", 10), *expected, "{headers:?}");
    }

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (range, expected) in [
            ("bytes=0-3", Asked::Part(0..4)),
            ("bytes=0-", Asked::Part(0..10)),
            ("Bytes=4-99", Asked::Part(4..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-99", Asked::Part(0..10)),
            ("bytes=9-9", Asked::Part(9..10)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=99999999999999999999-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=3-2", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("bytes=+1-2", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("lines=0-1", Asked::Whole),
            ("bytes", Asked::Whole),
        ] {
            check(&[(header::RANGE, range)], &expected);
        }
    }

    #[test]
    fn conditions_come_first() {
        check(&[(header::IF_NONE_MATCH, "\"x\", \"e\"")], &Asked::Nothing);
        check(&[(header::IF_NONE_MATCH, "\"x\""), (header::RANGE, "bytes=0-0")], &Asked::Part(0..1));
        check(&[(header::IF_RANGE, "\"e\""), (header::RANGE, "bytes=0-0")], &Asked::Part(0..1));
        check(&[(header::IF_RANGE, "\"x\""), (header::RANGE, "bytes=0-0")], &Asked::Whole);
        check(&[], &Asked::Whole);
    }
}
