//! What all request bodies have in common.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Deserialize;

use super::ApiError;
use crate::media;

/// Refuses bodies that don't say that they are JSON.
pub(crate) fn json_body(headers: &HeaderMap) -> Result<(), ApiError> {
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::schema("Unsupported Media Type: Only 'application/json' is allowed"))
}

/// Reads a JSON object.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|&first| first != b'{') {
        let message = "Input should be a valid dictionary or object to extract fields from";
        return Err(ApiError::schema(message).with_param("body"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let error_at = format!("body.{}", error.column());
        ApiError::schema(&format!("JSON body: {error}")).with_param(&error_at)
    })
}

/// Translates what is wrong with a request's prompt into vLLM's words.
pub(crate) fn refused(error: prompt::Error) -> ApiError {
    match error {
        prompt::Error::Malformed { .. } => ApiError::schema(&format!("JSON decode error: {error}")),
        prompt::Error::Media { fault, .. } => media::fault(fault),
        prompt::Error::Raised { message } => ApiError::bad(message),
        prompt::Error::Missing { param } => {
            ApiError::schema("Field required").with_param(&format!("body.{param}"))
        }
        prompt::Error::WrongType { ref param, .. } if param.contains("].content[") => {
            ApiError::bad(error.to_string())
        }
        prompt::Error::WrongType { ref param, .. } => {
            let param = format!("body.{param}");
            ApiError::schema(&error.to_string()).with_param(&param)
        }
        prompt::Error::Refused { ref param, .. } if param == "messages" => ApiError::bad(
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        ),
        prompt::Error::Refused { ref param, .. } => {
            let param = param.clone();
            ApiError::bad(error.to_string()).with_param(&param)
        }
    }
}
