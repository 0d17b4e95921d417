//! A span as it is shown.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1 as proto;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One span of one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// As `span_id`; empty for a root.
    pub parent_span_id: String,
    /// What was done.
    pub name: String,
    /// Name of the process's service.
    pub service: String,
    /// 1 internal, 2 server, 3 client.
    pub kind: i32,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// By name.
    pub attributes: Map<String, Value>,
}

impl Span {
    pub(crate) fn of(span: proto::Span, resource: Option<&Resource>) -> Self {
        let service = resource.and_then(|resource| {
            let named = resource.attributes.iter().find(|it| it.key == "service.name")?;
            value(named.value.clone()).as_str().map(str::to_owned)
        });
        Self {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_span_id: hex(&span.parent_span_id),
            name: span.name,
            service: service.unwrap_or_default(),
            kind: span.kind,
            start_ns: span.start_time_unix_nano,
            end_ns: span.end_time_unix_nano,
            attributes: map(span.attributes),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(pairs: Vec<KeyValue>) -> Map<String, Value> {
    pairs.into_iter().map(|pair| (pair.key, value(pair.value))).collect()
}

fn value(any: Option<AnyValue>) -> Value {
    match any.and_then(|any| any.value) {
        None => Value::Null,
        Some(Any::StringValue(text)) => text.into(),
        Some(Any::BoolValue(truth)) => truth.into(),
        Some(Any::IntValue(number)) => number.into(),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(list)) => {
            list.values.into_iter().map(|item| value(Some(item))).collect::<Vec<_>>().into()
        }
        Some(Any::KvlistValue(pairs)) => map(pairs.values).into(),
        Some(Any::BytesValue(bytes)) => hex(&bytes).into(),
        Some(_) => Value::Null,
    }
}
