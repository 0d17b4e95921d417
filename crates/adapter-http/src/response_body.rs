//! An engine's response body: bounded in silence, and giving its connection back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use ports::engine::{Endpoint, Error};
use tokio::time::{Instant, Sleep};

use crate::connection::Streaming;
use crate::pool::Pool;

/// Yields the frames as they come; dropped before its end it closes the connection, which cancels the request.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    streaming: Option<Streaming>,
    endpoint: Endpoint,
    pool: Arc<Pool>,
    idle: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
    last: Instant,
}

impl ResponseBody {
    pub(crate) fn new(streaming: Streaming, endpoint: Endpoint, idle: Duration, pool: Arc<Pool>) -> Self {
        let mut body =
            Self { streaming: Some(streaming), endpoint, pool, idle, alarm: None, last: Instant::now() };
        if body.streaming.as_ref().is_some_and(Body::is_end_stream) {
            body.finish();
        }
        body
    }

    fn finish(&mut self) {
        if let Some(streaming) = self.streaming.take() {
            self.pool.put(&self.endpoint, streaming.into_connection());
        }
    }

    /// Completes when nothing came for too long. The alarm is moved only when it rings, not for each frame.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let until = self.last + self.idle;
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            ready!(alarm.as_mut().poll(cx));
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(until);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Some(streaming) = this.streaming.as_mut() else { return Poll::Ready(None) };
        match Pin::new(streaming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.last = Instant::now();
                if this.streaming.as_ref().is_some_and(Body::is_end_stream) {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(failed))) => {
                this.streaming = None;
                let endpoint = this.endpoint.clone();
                Poll::Ready(Some(Err(Error::Broken { endpoint, reason: failed.reason })))
            }
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Pending => {
                ready!(this.poll_silence(cx));
                this.streaming = None;
                Poll::Ready(Some(Err(Error::Idle { endpoint: this.endpoint.clone(), deadline: this.idle })))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.streaming.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.streaming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
