//! W3C trace context, in and out of spans.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Makes `span` a child of the trace that a `traceparent` header names; a malformed header is ignored.
///
/// Must be called before the span is first entered.
pub fn set_parent(span: &Span, traceparent: &str) {
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&carrier);
    if let Err(cause) = span.set_parent(context) {
        tracing::debug!(%cause, "trace context not set");
    }
}

/// Returns the `traceparent` of the current span; none while no exporter is configured.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove("traceparent")
}
