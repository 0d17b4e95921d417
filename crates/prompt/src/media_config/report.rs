//! What `media-tokens` prints: the prediction for given sizes.

use media_geometry::{Expansion, Family, Geometry, ImageSize, Piece, Refused};
use serde::Serialize;

/// A text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size like 640x480")]
pub struct SizeError {
    /// The text.
    pub text: String,
}

/// The prediction for one image; serialises to one line of `media-tokens --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeReport {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The family's name.
    pub family: &'static str,
    /// How many tokens the reference counts for the image; null where it is refused.
    pub placeholder_tokens: Option<u32>,
    /// How many tokens the whole expansion has, structure included; null where the image is refused.
    pub tokens: Option<u32>,
    /// Why nothing is predicted; null where something is.
    pub error: Option<String>,
}

/// Parses `WIDTHxHEIGHT`.
///
/// # Errors
/// When the text is anything else; sides of zero are left to the family to refuse.
pub fn parse_size(text: &str) -> Result<ImageSize, SizeError> {
    let side = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok(),
        false => None,
    };
    let sides = text.split_once(['x', 'X']).and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides
        .map(|(width, height)| ImageSize::new(width, height))
        .ok_or_else(|| SizeError { text: text.to_owned() })
}

/// Returns the `config.json` of a model of which only the type is known.
#[must_use]
pub fn config_of_type(model_type: &str) -> Vec<u8> {
    serde_json::json!({ "model_type": model_type }).to_string().into_bytes()
}

/// Predicts each size as the only image of a request.
pub fn report_each(
    geometry: &Geometry,
    sizes: &[ImageSize],
    text_tokens: impl Fn(&str) -> u32,
) -> Vec<SizeReport> {
    sizes.iter().flat_map(|size| report(geometry, &[*size], &text_tokens)).collect()
}

/// Predicts the sizes as the images of one request.
///
/// `text_tokens` counts a text's tokens without special ones; for want of a tokenizer, one per text is right for the
/// published vocabularies.
pub fn report(
    geometry: &Geometry,
    sizes: &[ImageSize],
    text_tokens: impl Fn(&str) -> u32,
) -> Vec<SizeReport> {
    let expanded = geometry.expand(sizes);
    let family = geometry.family();
    sizes
        .iter()
        .zip(expanded)
        .map(|(size, expansion)| line(family, *size, &expansion, &text_tokens))
        .collect()
}

fn line(
    family: &Family,
    size: ImageSize,
    expansion: &Result<Expansion, Refused>,
    text_tokens: &impl Fn(&str) -> u32,
) -> SizeReport {
    let count = |piece: &Piece| match piece {
        Piece::Text { text } => text_tokens(text),
        Piece::Placeholder { .. } | Piece::Named { .. } | Piece::Id { .. } => piece.tokens(),
    };
    let known = expansion.as_ref().ok();
    let tokens = known.map(|expansion| expansion.pieces.iter().map(count).sum());
    let placeholders = known.map(|expansion| expansion.placeholder_tokens);
    SizeReport {
        width: size.width,
        height: size.height,
        family: family.name(),
        placeholder_tokens: if family.counts_structure() { tokens } else { placeholders },
        tokens,
        error: expansion.as_ref().err().map(ToString::to_string),
    }
}
