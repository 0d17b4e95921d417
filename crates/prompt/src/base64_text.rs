//! Strict base64 (RFC 4648, padded), as engines validate it.

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, DecodeSliceError, Engine};
use base64_simd::Out;

/// Python's decoder insists on padding and ignores bits left over in the last symbol.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// Appends `bytes` to a text.
pub(crate) fn append(bytes: &[u8], text: &mut Vec<u8>) {
    base64_simd::STANDARD.encode_append(bytes, text);
}

/// Decodes `text` into `bytes`; answers how many there are, or where the text is wrong.
pub(crate) fn decode(text: &[u8], bytes: &mut [u8]) -> Result<usize, usize> {
    match base64_simd::STANDARD.decode(text, Out::from_slice(bytes)) {
        Ok(decoded) => Ok(decoded.len()),
        // The fast decoder is stricter, and doesn't say where it stopped.
        Err(_) => decode_exactly(text, bytes),
    }
}

fn decode_exactly(text: &[u8], bytes: &mut [u8]) -> Result<usize, usize> {
    DECODER.decode_slice(text, bytes).map_err(|error| match error {
        DecodeSliceError::DecodeError(
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _),
        ) => at,
        DecodeSliceError::DecodeError(DecodeError::InvalidLength(_) | DecodeError::InvalidPadding)
        | DecodeSliceError::OutputSliceTooSmall => text.len().saturating_sub(1),
    })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::{any, proptest};

    use super::*;

    fn check(text: &str, expected: Result<&[u8], usize>) {
        let mut bytes = vec![0; text.len() / 4 * 3 + 3];
        let decoded = decode(text.as_bytes(), &mut bytes);
        assert_eq!(decoded.map(|len| &bytes[..len]), expected, "{text}");
    }

    #[test]
    fn decodes_as_python_validates() {
        check("", Ok(b""));
        check("YQ==", Ok(b"a"));
        check("YR==", Ok(b"a"));
        check("YWI=", Ok(b"ab"));
        check("YWJj", Ok(b"abc"));
        check("YWJ", Err(2));
        check("YQ", Err(1));
        check("YQ=", Err(2));
        check("YQ===", Err(2));
        check("YW-_", Err(2));
        check("YW\nJj", Err(2));
        check("====", Err(0));
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = STANDARD.encode(&bytes);
            let mut decoded = vec![0; text.len() / 4 * 3];
            let len = decode(text.as_bytes(), &mut decoded).unwrap();
            assert_eq!(&decoded[..len], &bytes[..]);
        }
    }
}
