//! Other `/v1/` paths: to a worker, by load.

use std::sync::Arc;

use actors::ScheduleRequest;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use identity::ModelName;
use parking_lot::Mutex;
use placement::{Confidence, Policy, RoutingRequest, Traits};
use serde_json::Value;

use crate::answer::Answer;
use crate::api_error::ApiError;
use crate::call::Call;
use crate::config::Tenancy;
use crate::dispatch::{Dispatch, Draft, waiting};
use crate::headers::{self, Wishes};
use crate::names::Names;
use crate::payload::Payload;
use crate::record::Record;
use crate::shared::Shared;

impl Shared {
    /// Forwards a request that is not understood, unchanged.
    pub(crate) async fn proxy(
        self: &Arc<Self>,
        call: &Call<'_>,
        body: Bytes,
    ) -> Result<Response<Answer>, ApiError> {
        if !matches!(call.parts.method, Method::GET | Method::POST | Method::DELETE) {
            let message = format!("method {} is not proxied", call.parts.method);
            return Err(ApiError::new(http::StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
        }
        if !may_pass(call.parts.uri.path(), call.caller.operator) {
            let message = format!("there is nothing at {}", call.parts.uri.path());
            return Err(ApiError::not_found("not_found", message));
        }
        if self.reader.tenancy == Tenancy::Isolated {
            let path = call.parts.uri.path();
            let message =
                format!("{path} is not served while tenants are isolated: engines would share its cache");
            return Err(ApiError::new(http::StatusCode::FORBIDDEN, "not_isolated", message));
        }
        let wishes = Wishes::read(&call.parts.headers, &call.caller)?;
        let bytes = body.len();
        let (read, form) = (body.clone(), is_form(&call.parts.headers, &body));
        let model =
            if form { None } else { self.reader.pool.run(bytes, move || read_foreign(&read)).await?? };
        let served = self.models.resolve(model.as_deref())?;
        let routing = RoutingRequest {
            // Files in a form are no prompt: by their size they would exceed every context.
            prompt_tokens: if form { 0 } else { u32::try_from(bytes / 4).unwrap_or(u32::MAX) },
            ..RoutingRequest::default()
        };
        let mut question = ScheduleRequest::new(Arc::new(routing), Policy::LeastLoaded);
        question.direct = wishes.direct;
        question.adapter = served.adapter;
        question.waiting = waiting(self.defaults.wait_max, 0, &call.caller.tenant);
        self.dispatch(Dispatch {
            method: call.parts.method.clone(),
            path: call.parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
            headers: headers::upstream(&call.parts.headers, &call.id, self.defaults.keep_authorization),
            late: None,
            allowance: call.allowance.clone(),
            payload: Payload::whole(body),
            question,
            draft: draft(&call.id, served.model),
            operator: call.caller.operator,
            arrived: call.arrived,
        })
        .await
    }
}

/// Paths by which engines are changed rather than asked.
const FOR_OPERATORS: [&str; 2] = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

/// Says whether a path may reach an engine: nothing that leads out of `/v1/`, and nothing that changes an engine
/// unless an operator asks.
fn may_pass(path: &str, operator: bool) -> bool {
    let plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~:@".contains(&byte));
    let inside = path.split('/').all(|segment| segment != ".." && segment != ".");
    plain && inside && (operator || !FOR_OPERATORS.contains(&path.trim_end_matches('/')))
}

fn draft(id: &str, model: ModelName) -> Draft {
    let record = Record {
        request_id: id.to_owned(),
        model,
        policy: Policy::LeastLoaded,
        fallback: None,
        block_size: 0,
        media: Vec::new(),
        decision: None,
        appraisals: Vec::new(),
        predicted: None,
        confidence: Confidence::Unknown,
        outcome: Mutex::default(),
    };
    Draft {
        record: Arc::new(record),
        obstacle: None,
        predicted: false,
        traits: Traits::default(),
        confidence: Confidence::Unknown,
        homework: None,
        names: Names::default(),
    }
}

/// Tells whether a body is a form with files; no parser takes one that begins so for JSON.
fn is_form(headers: &HeaderMap, body: &[u8]) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let form = b"multipart/";
    content_type.get(..form.len()).is_some_and(|start| start.eq_ignore_ascii_case(form))
        && body.starts_with(b"--")
}

/// Finds the model's name in a JSON body, and refuses what an engine would fetch unchecked.
///
/// What is no JSON here may be JSON to an engine (`NaN`, UTF-16, deep nesting): it can't be checked, so it is refused.
fn read_foreign(body: &[u8]) -> Result<Option<String>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request("invalid_json", format!("the body must be JSON or a form: {error}"))
    })?;
    if let Some(member) = remote_media(&value) {
        let message =
            format!("`{member}` must hold a data URL here: other URLs are served by /v1/chat/completions");
        return Err(ApiError::bad_request("media_url_refused", message).param(member));
    }
    Ok(value.get("model").and_then(Value::as_str).map(str::to_owned))
}

/// Members besides `…url` in which engines take URLs, one or a list.
const FETCHED: [&str; 8] =
    ["image", "images", "input_image", "video", "videos", "input_video", "audio", "input_audio"];

/// Finds a member that names media by a URL other than `data:`.
fn remote_media(value: &Value) -> Option<&str> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let fetched = name.ends_with("url") || name.ends_with("urls") || FETCHED.contains(&name.as_str());
            if fetched && names_remote(value) { Some(name.as_str()) } else { remote_media(value) }
        }),
        Value::Array(items) => items.iter().find_map(remote_media),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn names_remote(value: &Value) -> bool {
    match value {
        Value::String(url) => is_remote(url),
        Value::Array(items) => items.iter().any(names_remote),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn is_remote(url: &str) -> bool {
    let url = url.trim_start();
    !url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) && url.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_pass() {
        for good in ["/v1/embeddings", "/v1/responses/resp_1-a/cancel", "/v1/audio/transcriptions"] {
            assert!(may_pass(good, false), "{good}");
        }
        for bad in [
            "/v1/../metrics",
            "/v1/%2e%2e/metrics",
            "/v1/./a",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter/",
        ] {
            assert!(!may_pass(bad, false), "{bad}");
        }
        assert!(may_pass("/v1/load_lora_adapter", true));
    }

    #[test]
    fn unchecked_urls_are_refused() {
        let check = |body: &str| read_foreign(body.as_bytes()).map_err(|error| error.code);
        assert_eq!(check(r#"{"model":"m","input":"http://a/"}"#), Ok(Some("m".to_owned())));
        assert_eq!(check(r#"{"input":[{"image_url":"data:image/png;base64,AA"}]}"#), Ok(None));
        assert_eq!(check(" "), Ok(None));
        // Engines read all of these.
        let deep =
            format!(r#"{{"a":{}{},"image_url":"http://10.0.0.1/"}}"#, "[".repeat(200), "]".repeat(200));
        for body in ["not json", r#"{"a":NaN,"image_url":"http://10.0.0.1/"}"#, "\u{feff}{}", &deep] {
            assert_eq!(check(body), Err("invalid_json"), "{body}");
        }
        for body in [
            r#"{"input":[{"type":"input_image","image_url":"http://10.0.0.1/"}]}"#,
            r#"{"input":[{"image_url":{"url":" FILE:///etc/passwd"}}]}"#,
            r#"{"input":{"image":["data:,","http://10.0.0.1/"]}}"#,
            r#"{"tools":[{"type":"mcp","server_url":"http://10.0.0.1/"}]}"#,
        ] {
            assert_eq!(check(body), Err("media_url_refused"), "{body}");
        }
    }

    #[test]
    fn only_forms_pass_unread() {
        let check = |content_type: &'static str, body: &str| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]);
            is_form(&headers, body.as_bytes())
        };
        assert!(check("Multipart/form-data; boundary=x", "--x\r\n"));
        assert!(!check("multipart/form-data; boundary=x", r#"{"a":NaN}"#));
        assert!(!check("application/json", "--x"));
        assert!(!is_form(&HeaderMap::new(), b""));
    }
}
