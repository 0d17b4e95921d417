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
pub(crate) struct Answer {
    content: Content,
    /// Dropped with the body.
    held: Option<Box<dyn Send>>,
}

enum Content {
    Full(Option<Bytes>),
    Streamed(UnsyncBoxBody<Bytes, Broken>),
}

impl Answer {
    pub(crate) const fn empty() -> Self {
        Self { content: Content::Full(None), held: None }
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self { content: Content::Full(Some(bytes).filter(|bytes| !bytes.is_empty())), held: None }
    }

    /// Keeps something until the body is sent or given up.
    pub(crate) fn hold(&mut self, held: impl Send + 'static) {
        self.held = Some(Box::new(held));
    }

    pub(crate) fn streamed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<Broken>> + Send + 'static,
    {
        Self { content: Content::Streamed(body.map_err(Into::into).boxed_unsync()), held: None }
    }
}

/// Answers 200 with JSON.
pub(crate) fn json(value: &impl Serialize) -> Response<Answer> {
    match serde_json::to_vec(value) {
        Ok(json) => typed(Bytes::from(json), "application/json"),
        Err(cause) => {
            tracing::error!(%cause, "answer cannot be written as json");
            let mut response = Response::new(Answer::empty());
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
        match &mut self.content {
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Streamed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Content::Streamed(body) => body.size_hint(),
        }
    }
}
