//! The span of a request, below what its `traceparent` names.

use http::HeaderMap;
use tracing::Span;
use tracing::field::Empty;

/// Opens it.
pub(super) fn generate(headers: &HeaderMap) -> Span {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let span = tracing::debug_span!(
        "generate",
        otel.kind = "server",
        request_id = text("x-request-id"),
        prompt_tokens = Empty,
        cached_tokens = Empty,
        media = Empty
    );
    if let Some(traceparent) = text("traceparent") {
        telemetry::set_parent(&span, traceparent);
    }
    span
}
