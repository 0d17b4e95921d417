//! What a request's trace tells of its placement. Numbers are i64: exporters spell others as text.

use placement::Decision;
use tracing::Span;
use tracing::field::Empty;

/// Opens the span of a placement.
pub(super) fn place() -> Span {
    tracing::debug_span!(
        "place",
        worker = Empty,
        rank = Empty,
        reason = Empty,
        candidates = Empty,
        predicted_prompt_tokens = Empty,
        predicted_cached_tokens = Empty,
        media_resident = Empty,
        queue_ms = Empty,
        fetch_ms = Empty,
        encode_ms = Empty,
        prefill_ms = Empty,
        decode_ms = Empty,
        pressure_ms = Empty,
        total_ms = Empty
    )
}

/// Notes in it where the request goes, and what the chosen worker's cost is made of.
pub(super) fn record(span: &Span, decision: &Decision, prompt_tokens: u32) {
    if span.is_disabled() {
        return;
    }
    let choice = decision.choice();
    span.record("worker", choice.holder.worker.as_str());
    span.record("rank", i64::from(choice.holder.rank.0));
    span.record("reason", decision.reason.as_str());
    span.record("candidates", i64::try_from(decision.appraisals.len()).unwrap_or(i64::MAX));
    span.record("predicted_prompt_tokens", i64::from(prompt_tokens));
    span.record("predicted_cached_tokens", i64::from(choice.work.cached_tokens));
    span.record("media_resident", i64::from(choice.media_resident));
    let cost = &choice.cost;
    for (name, ms) in [
        ("queue_ms", cost.queue),
        ("fetch_ms", cost.fetch),
        ("encode_ms", cost.encode),
        ("prefill_ms", cost.prefill),
        ("decode_ms", cost.decode),
        ("pressure_ms", cost.pressure),
        ("total_ms", cost.total()),
    ] {
        span.record(name, ms);
    }
}
