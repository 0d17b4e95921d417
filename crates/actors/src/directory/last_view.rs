//! The cards last seen, as they are kept for a restart: one card of JSON per line.

use bytes::Bytes;
use membership::Card;

/// The name under which a namespace's view is kept.
pub(super) fn name(namespace: &str) -> String {
    format!("workers-{namespace}")
}

/// Writes cards.
pub(super) fn text<'a>(cards: impl Iterator<Item = &'a Card>) -> Bytes {
    let mut text = Vec::new();
    for encoded in cards.filter_map(|card| wire::card::encode(card).ok()) {
        text.extend_from_slice(&encoded);
        text.push(b'\n');
    }
    Bytes::from(text)
}

/// Reads cards; what is no card is skipped.
pub(super) fn cards(text: &[u8]) -> impl Iterator<Item = Card> {
    text.split(|byte| *byte == b'\n').filter_map(|line| wire::card::decode(line).ok())
}
