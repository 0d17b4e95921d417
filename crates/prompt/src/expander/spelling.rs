//! Spells expansions in a vocabulary's tokens.

use std::ops::Range;

use media_geometry::{Expansion, Piece};

use crate::fallback::Fallback;
use crate::tokeniser::Tokeniser;

/// An item's tokens, and where among them its reported range lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spelled {
    pub(super) tokens: Vec<u32>,
    pub(super) range: Range<usize>,
    pub(super) placeholders: u32,
    /// Whether an engine was seen to do so, rather than a family to say so.
    pub(super) learned: bool,
}

/// Spells a learned count: placeholders and nothing else. An expansion with other tokens among them gets other keys than
/// the engine's, so that less is credited, never more.
pub(super) fn plain(count: u32, placeholder: u32) -> Option<Spelled> {
    let tokens = vec![placeholder; size(count)];
    (count > 0).then_some(Spelled { range: 0..tokens.len(), tokens, placeholders: count, learned: true })
}

/// Spells an expansion; `placeholder` is the model's placeholder token.
pub(super) fn spell(
    expansion: &Expansion,
    placeholder: Option<u32>,
    tokeniser: &Tokeniser,
) -> Result<Spelled, Fallback> {
    let mut tokens = Vec::with_capacity(size(expansion.tokens()));
    // The range counts a text as one token; these say where its bounds lie in the real tokens.
    let (mut counted, mut start, mut end) = (0_u32, 0, 0);
    for piece in &expansion.pieces {
        let before = tokens.len();
        push(&mut tokens, piece, placeholder, tokeniser)?;
        let after = counted.saturating_add(piece.tokens());
        let place = |bound: u32| if bound == after { tokens.len() } else { before + size(bound - counted) };
        if (counted..after).contains(&expansion.range.start) {
            start = place(expansion.range.start);
        }
        if (counted..=after).contains(&expansion.range.end) {
            end = place(expansion.range.end);
        }
        counted = after;
    }
    let placeholders = expansion.placeholder_tokens;
    Ok(Spelled { tokens, range: start..end.max(start), placeholders, learned: false })
}

fn push(
    tokens: &mut Vec<u32>,
    piece: &Piece,
    placeholder: Option<u32>,
    tokeniser: &Tokeniser,
) -> Result<(), Fallback> {
    let mut repeat = |id: u32, count: u32| tokens.extend(std::iter::repeat_n(id, size(count)));
    match piece {
        Piece::Placeholder { count } => repeat(placeholder.ok_or(Fallback::MediaUnknownFamily)?, *count),
        Piece::Id { id, count } => repeat(*id, *count),
        Piece::Named { name, count } => {
            repeat(tokeniser.token_id(name).ok_or(Fallback::MediaUnknownFamily)?, *count);
        }
        Piece::Text { text } => {
            tokens.extend(tokeniser.encode(text, false).map_err(|_| Fallback::Tokenizer)?);
        }
    }
    Ok(())
}

pub(super) fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
