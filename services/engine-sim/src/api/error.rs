//! Errors as vLLM answers them.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    /// HTTP status.
    pub(crate) status: StatusCode,
    /// The error's class, as vLLM names it.
    pub(crate) kind: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// The parameter at fault.
    pub(crate) param: Option<String>,
}

impl ApiError {
    /// A request that makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: message.into(),
            param: None,
        }
    }

    /// A parameter out of its range; vLLM appends the parameter and the value to the message.
    pub(crate) fn invalid(message: &str, param: &str, value: Option<String>) -> Self {
        let value = value.map(|value| format!(", value={value}")).unwrap_or_default();
        Self::bad(format!("{message} (parameter={param}{value})")).with_param(param)
    }

    /// A body that isn't what the schema says.
    pub(crate) fn schema(message: &str) -> Self {
        let message = format!("1 validation error:\n  {message}");
        Self { kind: "Bad Request", ..Self::bad(message) }
    }

    /// A failure that vLLM answers with 500.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, kind: "InternalServerError", ..Self::bad(message) }
    }

    /// An unknown model.
    pub(crate) fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {served}.");
        Self { status: StatusCode::NOT_FOUND, kind: "NotFoundError", ..Self::bad(message) }
            .with_param("model")
    }

    /// A completion without a prompt.
    pub(crate) fn no_prompt() -> Self {
        Self::invalid("Either prompt or prompt_embeds must be provided and non-empty.", "prompt", None)
    }

    /// Media that cannot be had.
    pub(crate) fn unfetched(status: u16, url: &str) -> Self {
        let message =
            format!("Failed to fetch media from URL: HTTP {status} error (parameter=image_url, value={url})");
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            kind: "UnprocessableEntityError",
            ..Self::bad(message)
        }
        .with_param("image_url")
    }

    /// A prompt longer than the context; vLLM stops counting at one token too many.
    pub(crate) fn context_overflow(max_model_len: u32) -> Self {
        let found = max_model_len.saturating_add(1);
        let message = format!(
            "This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least \
             {found} input tokens, which exceeds this limit even without any output tokens. Please reduce the length \
             of the input prompt."
        );
        Self::invalid(&message, "input_tokens", Some(found.to_string()))
    }

    /// A full queue.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "ServiceUnavailableError",
            ..Self::bad(message)
        }
    }

    /// Something that this server doesn't do.
    pub(crate) fn not_implemented(message: &str) -> Self {
        Self { status: StatusCode::NOT_IMPLEMENTED, kind: "NotImplementedError", ..Self::bad(message) }
    }

    /// Names the parameter at fault.
    pub(crate) fn with_param(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Inner<'a>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            message: &'a str,
            r#type: &'static str,
            param: Option<&'a str>,
            code: u16,
        }
        let error = Inner {
            message: &self.message,
            r#type: self.kind,
            param: self.param.as_deref(),
            code: self.status.as_u16(),
        };
        (self.status, Json(Body { error })).into_response()
    }
}
