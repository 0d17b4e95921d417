//! What all request bodies have in common.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

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

/// Translates what is wrong with a request's prompt into vLLM's words.
pub(crate) fn refused(error: prompt::Error) -> ApiError {
    match error {
        prompt::Error::Malformed { .. } => ApiError::schema(&format!("JSON decode error: {error}")),
        prompt::Error::Media { fault, .. } => media::fault(fault),
        prompt::Error::Raised { message } => ApiError::bad(message),
        prompt::Error::Missing { param } => {
            ApiError::schema("Field required").with_param(&format!("body.{param}"))
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
