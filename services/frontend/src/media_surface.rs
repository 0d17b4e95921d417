//! The media listener: hands engines the bytes that an id names, and nothing else.

use std::sync::Arc;

use actors::dim_cache::{self, Lost, Stored};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use identity::MediaId;
use ports::media_source;

use crate::answer::Answer;
use crate::api_error::ApiError;
use crate::byte_range::{self, Asked};
use crate::hand_over::BITMAP;
use crate::media_address::MediaAddress;
use crate::media_token::Refused;
use crate::server::Handler;
use crate::shared::Shared;

/// The media listener's view of a frontend.
#[derive(Debug)]
pub(crate) struct MediaSurface {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: MediaAddress,
}

impl Handler for MediaSurface {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
        let (parts, _) = request.into_parts();
        let (mut response, outcome) = match self.find(&parts).await {
            Ok((stored, outcome)) => (present(&parts, &stored), outcome),
            Err((error, outcome)) => (error.response(), outcome),
        };
        self.shared.metrics.media_served(outcome);
        guard(response.headers_mut());
        response
    }
}

impl MediaSurface {
    /// Finds what is asked for, and how that went.
    async fn find(&self, parts: &Parts) -> Result<(Stored, &'static str), (ApiError, &'static str)> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            let message = format!("method {} is not allowed here", parts.method);
            let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
            return Err((error, "refused"));
        }
        let path = parts.uri.path();
        let Some(named) = path.strip_prefix("/media/").filter(|name| is_id(id_of(name))) else {
            return Err((ApiError::not_found("not_found", format!("there is nothing at {path}")), "refused"));
        };
        let now_s = self.shared.clock.wall_ms() / 1000;
        if let Err(refused) = self.address.check(named, parts.uri.query(), now_s) {
            return Err(denied(refused));
        }
        let (id, cache) = (MediaId::new(id_of(named)), self.shared.reader.media.cache());
        let (stored, outcome) = match cache.stored(&id).await {
            Some(stored) => (stored, "stored"),
            None => (cache.recover(&id, &self.shared.bodies.allowance()).await.map_err(gone)?, "recovered"),
        };
        let Some(bitmaps) = self.shared.hand_over.bitmaps.as_ref().filter(|_| named.ends_with(BITMAP)) else {
            return Ok((stored, outcome));
        };
        match bitmaps.of(&id, &stored).await {
            Ok(Ok(bitmap)) => Ok((bitmap.stored.clone(), outcome)),
            Ok(Err(_)) => Ok((stored, outcome)),
            Err(error) => Err((error.into(), "overloaded")),
        }
    }
}

/// Returns the id in an item's name.
fn id_of(name: &str) -> &str {
    name.strip_suffix(BITMAP).unwrap_or(name)
}

/// Tells whether a name has the form of a media id.
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn denied(refused: Refused) -> (ApiError, &'static str) {
    let (message, outcome) = match refused {
        Refused::Forged => ("the token does not open this item", "denied"),
        Refused::Expired => ("the token has expired", "expired"),
    };
    (ApiError::new(StatusCode::FORBIDDEN, "media_token_refused", message), outcome)
}

fn gone(lost: Lost) -> (ApiError, &'static str) {
    match lost {
        Lost::Unknown => (ApiError::not_found("media_not_found", lost.to_string()), "unknown"),
        Lost::Changed => (ApiError::new(StatusCode::GONE, "media_changed", lost.to_string()), "changed"),
        Lost::Origin(dim_cache::Error::Pool(error)) => (error.into(), "overloaded"),
        Lost::Origin(dim_cache::Error::Source(media_source::Error::NoRoom(error))) => {
            (error.into(), "overloaded")
        }
        Lost::Origin(error @ (dim_cache::Error::Source(_) | dim_cache::Error::NotAnImage { .. })) => {
            (ApiError::new(StatusCode::BAD_GATEWAY, "media_fetch_failed", error.to_string()), "origin")
        }
    }
}

/// Whatever is answered, nothing takes it for a page.
fn guard(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
}

/// Answers with the bytes, or the part of them that is asked for; nothing is copied.
fn present(parts: &Parts, stored: &Stored) -> Response<Answer> {
    let bytes = &stored.bytes;
    let mut response = Response::new(Answer::empty());
    let headers = response.headers_mut();
    // What is opened is named by its content, the path without its first segment.
    let etag = format!("\"{}\"", parts.uri.path().trim_start_matches("/media/"));
    for (name, text) in [(header::CONTENT_TYPE, &*stored.media_type), (header::ETAG, etag.as_str())] {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, immutable, max-age=600"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let head = parts.method == Method::HEAD;
    let status = match byte_range::asked(&parts.headers, &etag, bytes.len()) {
        Asked::Nothing => StatusCode::NOT_MODIFIED,
        Asked::Whole => {
            headers.insert(header::CONTENT_LENGTH, bytes.len().into());
            if !head {
                *response.body_mut() = Answer::full(bytes.clone());
            }
            StatusCode::OK
        }
        Asked::Part(range) => {
            let told = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
            headers.insert(header::CONTENT_LENGTH, range.len().into());
            if let Ok(value) = HeaderValue::from_str(&told) {
                headers.insert(header::CONTENT_RANGE, value);
            }
            if !head {
                *response.body_mut() = Answer::full(bytes.slice(range));
            }
            StatusCode::PARTIAL_CONTENT
        }
        Asked::Beyond => {
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{}", bytes.len())) {
                headers.insert(header::CONTENT_RANGE, value);
            }
            StatusCode::RANGE_NOT_SATISFIABLE
        }
    };
    *response.status_mut() = status;
    response
}
