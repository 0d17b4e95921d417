//! Errors in OpenAI's shape.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::answer::Answer;

/// What the client is told, and, apart from it, what the log is told.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
    pub(crate) param: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) cause: Option<String>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: bounded(message.into()), param: None, retry_after: None, cause: None }
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "missing or unknown API key: send it as `authorization: Bearer <key>`";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    pub(crate) fn overloaded(message: impl Into<Cow<'static, str>>, after: Duration) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", message);
        error.retry_after = Some(after);
        error
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn cause(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Writes the body.
    pub(crate) fn json(&self) -> Bytes {
        let error = Inner {
            message: &self.message,
            kind: kind(self.status),
            param: self.param.as_deref(),
            code: self.code,
        };
        let json = serde_json::to_vec(&Outer { error });
        json.map_or_else(|_| Bytes::from_static(b"{\"error\":{}}"), Bytes::from)
    }

    /// Makes the response.
    pub(crate) fn response(&self) -> Response<Answer> {
        let mut response = Response::new(Answer::full(self.json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            let seconds = after.as_millis().div_ceil(1000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Longest message, in bytes: messages quote what clients send.
const MESSAGE_BYTES_MAX: usize = 1024;

fn bounded(message: Cow<'static, str>) -> Cow<'static, str> {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message;
    }
    let kept = message.get(..message.floor_char_boundary(MESSAGE_BYTES_MAX)).unwrap_or_default();
    Cow::Owned(format!("{kept}…"))
}

#[derive(Serialize)]
struct Outer<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: &'a str,
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quotation_is_cut() {
        let error = ApiError::bad_request("invalid_value", "é".repeat(1 << 20));
        assert_eq!(error.message, "é".repeat(512) + "…");
    }

    #[test]
    fn body_has_openai_shape() {
        let error =
            ApiError::bad_request("invalid_image", "image 1 is \"bad\"").param("messages").cause("secret");
        assert_eq!(
            error.json(),
            r#"{"error":{"message":"image 1 is \"bad\"","type":"invalid_request_error","param":"messages","code":"invalid_image"}}"#
        );
        let response = ApiError::overloaded("busy", Duration::from_millis(1200)).response();
        assert_eq!(response.headers()["retry-after"], "2");
    }
}
