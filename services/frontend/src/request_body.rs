//! Reading request bodies within bounds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actors::dim_cache::Allowance;
use actors::{ByteBudget, Share};
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ports::media_source::Room as _;
use tokio::time::{Sleep, sleep};

use crate::answer::{Answer, Broken};
use crate::api_error::ApiError;
use crate::config::Config;

/// Bounds of request bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes_max: u64,
    deadline: Duration,
    /// Bytes that may be fetched for one request.
    fetched_bytes_max: u64,
    /// What requests may hold together: bodies, what was fetched for them, and what is made of it.
    budget: ByteBudget,
}

/// A body, and its share of the budget for as long as it is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
    /// What may be fetched for the request.
    pub(crate) allowance: Allowance,
}

/// A body that was not read; the rest of it may still arrive.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) error: ApiError,
    pub(crate) rest: Option<Incoming>,
}

impl From<ApiError> for Unread {
    fn from(error: ApiError) -> Self {
        Self { error, rest: None }
    }
}

/// Most bytes set aside on the word of a `content-length`; untouched, they cost nothing.
const AHEAD: u64 = 4 << 20;
/// Bytes by which a body's share of the budget grows.
const STEP: u64 = 256 << 10;

impl Bodies {
    pub(crate) fn new(config: &Config) -> Self {
        let limits = &config.limits;
        Self {
            bytes_max: limits.body_bytes_max,
            deadline: Duration::from_millis(limits.body_ms),
            fetched_bytes_max: config.media.request_bytes_max,
            budget: ByteBudget::new("limits.held_bytes_max", limits.held_bytes_max),
        }
    }

    /// Makes what a request may hold.
    pub(crate) fn allowance(&self) -> Allowance {
        let own = ByteBudget::new("media.request_bytes_max", self.fetched_bytes_max);
        Allowance::new(&own, self.budget.tab())
    }

    /// Reads a body whole; a length that is too large is refused before anything is read.
    pub(crate) async fn read(&self, mut body: Incoming) -> Result<Held, Unread> {
        let announced = body.size_hint().lower();
        if announced > self.bytes_max {
            return Err(Unread { error: self.too_large(), rest: Some(body) });
        }
        let allowance = self.allowance();
        let mut share = allowance.tab().share();
        let mut reserved = 0;
        let mut bytes = BytesMut::with_capacity(usize::try_from(announced.min(AHEAD)).unwrap_or(0));
        let reading = async {
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|cause| incomplete().cause(cause))?.into_data() else {
                    continue;
                };
                let total = length(bytes.len() + data.len());
                if total > self.bytes_max {
                    return Err(self.too_large());
                }
                // What has arrived counts, not what was announced: promises cost their maker nothing.
                while reserved < total {
                    let step = announced.saturating_sub(reserved).clamp(1, STEP).max(total - reserved);
                    share.grow(step)?;
                    reserved += step;
                }
                bytes.extend_from_slice(&data);
            }
            Ok(())
        };
        match tokio::time::timeout(self.deadline, reading).await {
            Ok(Ok(())) => Ok(Held { bytes: bytes.freeze(), share, allowance }),
            Ok(Err(error)) => Err(Unread { error, rest: Some(body) }),
            Err(_) => {
                let message = format!("the request body did not arrive within {} s", self.deadline.as_secs());
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message).into())
            }
        }
    }

    fn too_large(&self) -> ApiError {
        let message = format!("the request body exceeds the limit of {} bytes", self.bytes_max);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }
}

fn incomplete() -> ApiError {
    ApiError::bad_request("incomplete_body", "the request body ended early")
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Unread {
    /// Makes the response; what is left of the body is read and dropped for a moment, so that a client that still
    /// sends gets to read the answer instead of a reset.
    pub(crate) fn response(self) -> Response<Answer> {
        let mut response = self.error.response();
        if let Some(rest) = self.rest {
            let (json, patience) = (Some(self.error.json()), Box::pin(sleep(LINGER)));
            *response.body_mut() = Answer::streamed(Lingering { json, rest, patience, bytes: 0 });
            response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
        }
        response
    }
}

/// How long, and how much of, a refused body is read.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: u64 = 256 << 20;

/// An answer that ends once the request's body has.
struct Lingering {
    json: Option<Bytes>,
    rest: Incoming,
    patience: Pin<Box<Sleep>>,
    bytes: u64,
}

impl Body for Lingering {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(json) = self.json.take() {
            return Poll::Ready(Some(Ok(Frame::data(json))));
        }
        loop {
            if self.patience.as_mut().poll(cx).is_ready() || self.bytes > LINGER_BYTES_MAX {
                return Poll::Ready(None);
            }
            match Pin::new(&mut self.rest).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.bytes += frame.data_ref().map_or(0, |data| length(data.len()));
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
