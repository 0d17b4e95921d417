//! Other `/v1/` paths: to a worker, by load.

use std::sync::Arc;

use actors::ScheduleRequest;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Response};
use identity::ModelName;
use parking_lot::Mutex;
use placement::{Policy, RoutingRequest, Traits};
use serde_json::Value;

use crate::answer::Answer;
use crate::api_error::ApiError;
use crate::call::Call;
use crate::dispatch::{Dispatch, Draft, waiting};
use crate::headers::{self, Wishes};
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
        let wishes = Wishes::read(&call.parts.headers)?;
        let bytes = body.len();
        let read = body.clone();
        let model = self.reader.pool.run(bytes, move || read_foreign(&read)).await??;
        let served = self.models.resolve(model.as_deref())?;
        let routing = RoutingRequest {
            prompt_tokens: u32::try_from(bytes / 4).unwrap_or(u32::MAX),
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
            body: if body.is_empty() { Vec::new() } else { vec![body] },
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
        outcome: Mutex::default(),
    };
    Draft { record: Arc::new(record), obstacle: None, predicted: false, traits: Traits::default() }
}

/// Finds the model's name in a JSON body, and refuses what an engine would fetch unchecked.
fn read_foreign(body: &[u8]) -> Result<Option<String>, ApiError> {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Ok(None) };
    if let Some(member) = remote_media(&value) {
        let message =
            format!("`{member}` must hold a data URL here: other URLs are served by /v1/chat/completions");
        return Err(ApiError::bad_request("media_url_refused", message).param(member));
    }
    Ok(value.get("model").and_then(Value::as_str).map(str::to_owned))
}

/// Members whose URLs engines fetch.
const FETCHED: [&str; 7] = ["image_url", "video_url", "audio_url", "file_url", "input_image", "image", "url"];

/// Finds a member that names media by a URL other than `data:`.
fn remote_media(value: &Value) -> Option<&str> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let fetched = FETCHED.contains(&name.as_str()) && value.as_str().is_some_and(is_remote);
            if fetched { Some(name.as_str()) } else { remote_media(value) }
        }),
        Value::Array(items) => items.iter().find_map(remote_media),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
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
        assert_eq!(check("not json"), Ok(None));
        for body in [
            r#"{"input":[{"type":"input_image","image_url":"http://10.0.0.1/"}]}"#,
            r#"{"input":[{"image_url":{"url":" FILE:///etc/passwd"}}]}"#,
        ] {
            assert_eq!(check(body), Err("media_url_refused"), "{body}");
        }
    }
}
