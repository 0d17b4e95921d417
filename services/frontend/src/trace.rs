//! The spans of a request: what they are called and what they tell. Prompts, media and keys never stand in one.
//!
//! ```text
//! request ─┬─ preprocess ─── image, one per item
//!          ├─ match ─ place                            (the scheduler's)
//!          └─ proxy ─── the engine's
//! ```

use std::time::Duration;

use identity::Holder;
use placement::{Actual, Verdict};
use tracing::Span;
use tracing::field::Empty;

use crate::record::Record;
use crate::understanding::Understood;

/// Numbers are i64: exporters spell others as text.
fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Opens the span of reading a request.
pub(crate) fn preprocess() -> Span {
    tracing::debug_span!(
        "preprocess",
        model = Empty,
        prompt_tokens = Empty,
        media = Empty,
        media_tokens = Empty,
        blocks = Empty,
        fallback = Empty
    )
}

/// Notes in it what was read.
pub(crate) fn understood(span: &Span, understood: &Understood) {
    if span.is_disabled() {
        return;
    }
    let routing = &understood.prepared.routing;
    span.record("model", understood.model.as_str());
    span.record("prompt_tokens", i64::from(routing.prompt_tokens));
    span.record("media", count(understood.items.len()));
    span.record("media_tokens", i64::from(routing.mm_routing_info.total_image_tokens));
    span.record("blocks", count(routing.chains.iter().map(|chain| chain.keys.len()).max().unwrap_or(0)));
    if let Some(fallback) = understood.fallback {
        span.record("fallback", fallback);
    }
}

/// Opens the span of an attempt at one worker; it lasts until the answer has ended.
pub(crate) fn proxy(record: &Record, holder: &Holder) -> Span {
    let span = tracing::debug_span!(
        "proxy",
        otel.kind = "client",
        request_id = record.request_id,
        model = record.model.as_str(),
        worker = holder.worker.as_str(),
        rank = i64::from(holder.rank.0),
        predicted_prompt_tokens = Empty,
        predicted_cached_tokens = Empty,
        actual_prompt_tokens = Empty,
        actual_cached_tokens = Empty,
        verdict = Empty,
        status = Empty,
        first_byte_ms = Empty,
        failure = Empty
    );
    if let Some(predicted) = &record.predicted {
        span.record("predicted_prompt_tokens", i64::from(predicted.prompt_tokens));
        span.record("predicted_cached_tokens", i64::from(predicted.cached_tokens));
    }
    span
}

/// Notes in it that the answer has begun.
pub(crate) fn begun(span: &Span, status: http::StatusCode, after: Duration) {
    span.record("status", i64::from(status.as_u16()));
    span.record("first_byte_ms", after.as_secs_f64() * 1000.0);
}

/// Notes in it what the engine counted.
pub(crate) fn counted(span: &Span, actual: &Actual) {
    span.record("actual_prompt_tokens", i64::from(actual.prompt_tokens));
    if let Some(cached) = actual.cached_tokens {
        span.record("actual_cached_tokens", i64::from(cached));
    }
}

/// Notes in it what came of the prediction.
pub(crate) fn judged(span: &Span, verdict: Verdict) {
    span.record("verdict", verdict.as_str());
}
