//! Bodies of responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde::Serialize;

/// Why a response body ended early; the connection is closed then.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

/// A response body: ready at once, or streamed.
pub(crate) enum Answer {
    Full(Option<Bytes>),
    Streamed(UnsyncBoxBody<Bytes, Broken>),
}

impl Answer {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    pub(crate) fn streamed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<Broken>> + Send + 'static,
    {
        Self::Streamed(body.map_err(Into::into).boxed_unsync())
    }
}

/// Answers 200 with JSON.
pub(crate) fn json(value: &impl Serialize) -> Response<Answer> {
    match serde_json::to_vec(value) {
        Ok(json) => typed(Bytes::from(json), "application/json"),
        Err(cause) => {
            tracing::error!(%cause, "answer cannot be written as json");
            let mut response = Response::new(Answer::Full(None));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// Answers 200 with a body of the given type.
pub(crate) fn typed(body: Bytes, content_type: &'static str) -> Response<Answer> {
    let mut response = Response::new(Answer::full(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Self::Streamed(body) => body.size_hint(),
        }
    }
}
