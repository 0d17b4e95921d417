//! What goes wrong inside, as clients are told.

use std::time::Duration;

use actors::{dim_cache, media_resolver, preprocessor, scheduler};
use http::StatusCode;
use placement::Why;
use ports::media_source::NoRoom;
use ports::{Retry, engine, media_source};

use crate::api_error::ApiError;

impl From<prompt::Error> for ApiError {
    fn from(error: prompt::Error) -> Self {
        let status =
            if error.is_too_large() { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        let code = match &error {
            prompt::Error::Malformed { .. } => "invalid_json",
            prompt::Error::WrongType { .. } => "invalid_type",
            prompt::Error::Missing { .. } => "missing_parameter",
            prompt::Error::Refused { .. } => "invalid_value",
            prompt::Error::Media { .. } => "invalid_media",
            prompt::Error::Raised { .. } => "template_error",
        };
        let answer = Self::new(status, code, error.to_string());
        match error.param() {
            Some(param) => answer.param(param),
            None => answer,
        }
    }
}

impl From<preprocessor::Error> for ApiError {
    fn from(error: preprocessor::Error) -> Self {
        match error {
            preprocessor::Error::Panicked => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "the request could not be processed",
            )
            .cause(error),
            preprocessor::Error::Full { .. } | preprocessor::Error::Timeout { .. } => {
                Self::overloaded("too many requests are being prepared", Duration::from_secs(1)).cause(error)
            }
        }
    }
}

impl From<media_resolver::Error> for ApiError {
    fn from(error: media_resolver::Error) -> Self {
        match error {
            media_resolver::Error::Pool(error) => error.into(),
            media_resolver::Error::Item { index, param, fault } => item(index, &fault).param(param),
            media_resolver::Error::TooMany { .. } => {
                Self::bad_request("too_many_media", error.to_string()).param("messages")
            }
        }
    }
}

/// Names the item and what is wrong with it; never its URL's query.
fn item(index: usize, fault: &media_resolver::Fault) -> ApiError {
    let message = format!("media item {index}: {fault}");
    match fault {
        media_resolver::Fault::Data(prompt::MediaFault::TooLarge { .. }) => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "media_too_large", message)
        }
        media_resolver::Fault::Data(_) => ApiError::bad_request("invalid_media", message),
        media_resolver::Fault::NotAnImage { .. } | media_resolver::Fault::TooManyPixels { .. } => {
            ApiError::bad_request("invalid_image", message)
        }
        media_resolver::Fault::UnknownName => ApiError::bad_request("unknown_media_uuid", message),
        media_resolver::Fault::Local => ApiError::bad_request("media_url_refused", message),
        media_resolver::Fault::Fetch(dim_cache::Error::NotAnImage { .. }) => {
            ApiError::bad_request("invalid_image", message)
        }
        media_resolver::Fault::Fetch(dim_cache::Error::Source(source)) => fetch(source, message),
        media_resolver::Fault::Fetch(dim_cache::Error::Pool(_)) => {
            ApiError::overloaded(message, Duration::from_secs(1))
        }
    }
}

fn fetch(source: &media_source::Error, message: String) -> ApiError {
    if matches!(source, media_source::Error::TooLarge { .. }) {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "media_too_large", message)
    } else if let media_source::Error::NoRoom(no_room) = source {
        ApiError { message: message.into(), ..no_room.clone().into() }
    } else if matches!(source, media_source::Error::Busy { .. }) {
        ApiError::overloaded(message, Duration::from_secs(1))
    } else if source.retry() == Retry::Never {
        ApiError::bad_request("media_url_refused", message)
    } else {
        ApiError::bad_request("media_fetch_failed", message)
    }
}

impl From<NoRoom> for ApiError {
    fn from(no_room: NoRoom) -> Self {
        let message = no_room.to_string();
        match no_room {
            NoRoom::TooMuch { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message),
            NoRoom::Exhausted => Self::overloaded(message, Duration::from_secs(1)),
        }
    }
}

impl From<scheduler::Error> for ApiError {
    fn from(error: scheduler::Error) -> Self {
        match error {
            scheduler::Error::Overloaded { retry_after } => {
                Self::overloaded("every worker is busy", retry_after)
            }
            scheduler::Error::UnknownWorker { .. } => {
                Self::not_found("worker_not_found", error.to_string()).param("x-sightline-worker")
            }
            scheduler::Error::UnknownRank { .. } => {
                Self::not_found("rank_not_found", error.to_string()).param("x-sightline-rank")
            }
            scheduler::Error::Unservable { why } => unservable(why),
            scheduler::Error::NoWorker { .. } => Self::unavailable("no_worker", error.to_string()),
            scheduler::Error::Scheduler(_) | _ => {
                Self::unavailable("scheduler_unavailable", "the request could not be placed").cause(error)
            }
        }
    }
}

fn unservable(why: Why) -> ApiError {
    let known = [
        (Why::Context, "context_length_exceeded", "the prompt is longer than any worker's context"),
        (Why::MediaCount, "too_many_media", "the request has more media items than any worker takes"),
        (
            Why::MediaNotResident,
            "unknown_media_uuid",
            "no worker has the media that come without data: send their data along with their uuids",
        ),
    ];
    match known.into_iter().find(|(reason, ..)| *reason == why) {
        Some((_, code, message)) => ApiError::bad_request(code, message).param("messages"),
        None => ApiError::bad_request("unservable", format!("no worker can serve the request: {why}")),
    }
}

impl From<engine::Error> for ApiError {
    fn from(error: engine::Error) -> Self {
        let late = matches!(error, engine::Error::HeadTimeout { .. } | engine::Error::Idle { .. });
        let (status, code, message) = if late {
            (StatusCode::GATEWAY_TIMEOUT, "worker_timeout", "the worker did not answer in time")
        } else {
            (StatusCode::BAD_GATEWAY, "worker_failed", "the worker failed before it answered")
        };
        Self::new(status, code, message).cause(error)
    }
}
