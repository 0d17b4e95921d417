//! Finds where a string's unescaped stretch ends, many bytes at a time.

const STRIDE: usize = 64;

/// The stretch of a string up to the next quote, backslash or control character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Its length in bytes.
    pub(super) len: usize,
    /// Whether all its bytes are ASCII.
    pub(super) ascii: bool,
}

/// Measures the stretch of plain bytes at the start of `bytes`.
pub(super) fn plain(bytes: &[u8]) -> Stretch {
    let mut len = 0;
    let mut high = 0_u8;
    for chunk in bytes.chunks_exact(STRIDE) {
        // No early exit inside the chunk: so the compiler turns it into vector instructions.
        let (mut stop, mut seen) = (0_u8, 0_u8);
        for &byte in chunk {
            stop |= u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
            seen |= byte;
        }
        if stop != 0 {
            break;
        }
        high |= seen;
        len += STRIDE;
    }
    for &byte in bytes.get(len..).unwrap_or_default() {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            break;
        }
        high |= byte;
        len += 1;
    }
    Stretch { len, ascii: high < 0x80 }
}
