//! Strict base64 (RFC 4648, padded), as engines validate it.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, DecodeSliceError};

/// Python's decoder insists on padding and ignores bits left over in the last symbol.
const DECODER: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes `text` into `bytes`; answers how many there are, or where the text is wrong.
pub(crate) fn decode(text: &[u8], bytes: &mut [u8]) -> Result<usize, usize> {
    DECODER.decode_slice(text, bytes).map_err(|error| match error {
        DecodeSliceError::DecodeError(
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _),
        ) => at,
        DecodeSliceError::DecodeError(DecodeError::InvalidLength(_) | DecodeError::InvalidPadding)
        | DecodeSliceError::OutputSliceTooSmall => text.len().saturating_sub(1),
    })
}
