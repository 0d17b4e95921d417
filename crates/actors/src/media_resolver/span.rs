//! The span of one item within its request's trace.

use prompt::MediaPart;
use tracing::Span;
use tracing::field::Empty;

use super::{Origin, Passed};
use crate::dim_cache::Known;

/// Opens an item's span; what it shows and where it comes from stay out of it.
pub(super) fn of(part: &MediaPart) -> Span {
    let index = i64::try_from(part.index).unwrap_or(i64::MAX);
    tracing::debug_span!("image", index, source = Empty, bytes = Empty, width = Empty, height = Empty)
}

/// Notes in it what was found.
pub(super) fn record(span: &Span, origin: Origin, (known, passed): (Option<&Known>, Option<&Passed>)) {
    span.record("source", origin.as_str());
    if let Some(known) = known {
        span.record("bytes", known.bytes.cast_signed());
    }
    if let Some(size) = known.and_then(|known| known.size).or_else(|| passed?.size) {
        span.record("width", i64::from(size.width));
        span.record("height", i64::from(size.height));
    }
}
