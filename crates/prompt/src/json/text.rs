//! String escapes.

/// Resolves the escapes of a string that the parser has accepted.
pub(super) fn unescape(between: &[u8]) -> String {
    let mut text = Vec::with_capacity(between.len());
    let mut rest = between;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (plain, escape) = rest.split_at(at);
        text.extend_from_slice(plain);
        let Some((character, len)) = escape_at(escape) else { break };
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = escape.get(len..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
    String::from_utf8(text).unwrap_or_default()
}

/// Reads the escape at the start of `bytes`: its character and its length.
///
/// A lone surrogate is not a character.
pub(super) fn escape_at(bytes: &[u8]) -> Option<(char, usize)> {
    let (&b'\\', rest) = bytes.split_first()? else { return None };
    let plain = match rest.first()? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(bytes),
        _ => return None,
    };
    Some((plain, 2))
}

fn unicode(bytes: &[u8]) -> Option<(char, usize)> {
    let first = hex4(bytes.get(2..6)?)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    if !(0xd800..0xdc00).contains(&first) || bytes.get(6..8)? != b"\\u" {
        return None;
    }
    let second = hex4(bytes.get(8..12)?)?;
    if !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    char::from_u32(code).map(|character| (character, 12))
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}
