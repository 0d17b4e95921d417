//! Tables, as strictly as libjpeg makes its own of them (`jdmarker.c`, `jdhuff.c`).

use crate::unfit::Unfit;

/// Tables of one kind.
const TABLES_MAX: u8 = 4;
/// Largest symbol of a table for first coefficients: the bits of a difference.
const DIFFERENCE_BITS_MAX: u8 = 15;

/// Checks a segment of Huffman tables.
pub(super) fn huffman(mut segment: &[u8]) -> Result<(), Unfit> {
    while let Some((&[class_and_slot], rest)) = segment.split_first_chunk() {
        let (class, slot) = (class_and_slot >> 4, class_and_slot & 15);
        let (counts, rest) = rest.split_first_chunk::<16>().ok_or_else(bogus)?;
        let codes: usize = counts.iter().copied().map(usize::from).sum();
        let (symbols, rest) = rest.split_at_checked(codes).ok_or_else(bogus)?;
        let differs = class == 0;
        if class > 1
            || slot >= TABLES_MAX
            || codes > 256
            || !is_prefix_code(counts)
            || (differs && symbols.iter().any(|symbol| *symbol > DIFFERENCE_BITS_MAX))
        {
            return Err(bogus());
        }
        segment = rest;
    }
    Ok(())
}

/// Tells whether there are codes of these lengths of which none is all ones.
fn is_prefix_code(counts: &[u8; 16]) -> bool {
    let mut code = 0_u32;
    counts.iter().zip(1_u32..).all(|(count, bits)| {
        code = (code << 1) + u32::from(*count);
        *count == 0 || code < 1 << bits
    })
}

/// Checks a segment of quantisation tables.
pub(super) fn quantisation(mut segment: &[u8]) -> Result<(), Unfit> {
    while let Some((&[precision_and_slot], rest)) = segment.split_first_chunk() {
        let bytes = match precision_and_slot >> 4 {
            0 => 64,
            1 => 128,
            _ => return Err(bogus()),
        };
        let (_, rest) = rest.split_at_checked(bytes).ok_or_else(bogus)?;
        if precision_and_slot & 15 >= TABLES_MAX {
            return Err(bogus());
        }
        segment = rest;
    }
    Ok(())
}

fn bogus() -> Unfit {
    Unfit::broken("a bogus table")
}
