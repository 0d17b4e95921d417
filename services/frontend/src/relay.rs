//! An answer on its way from the engine to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actors::{Quest, Reservation};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use identity::Holder;
use ports::engine;
use tracing::Span;

use crate::answer::Broken;
use crate::api_error::ApiError;
use crate::dispatch::Draft;
use crate::record::Record;
use crate::shared::Shared;
use crate::usage::UsageScanner;
use crate::verification::Sighting;

/// Passes frames as they come, and reads usage in passing. Dropped before its end, it cancels the engine's work.
pub(crate) struct Relay {
    body: Prefixed,
    scanner: UsageScanner,
    ticket: Option<Ticket>,
    events: bool,
    /// Whether the last event passed is complete.
    between_events: bool,
    ended: bool,
}

/// What is settled when an answer ends, however it does.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) record: Arc<Record>,
    pub(crate) holder: Holder,
    /// How the index stood when the request was placed.
    pub(crate) sighting: Sighting,
    /// Asks for the names that the engine gives to the request's images.
    pub(crate) quest: Option<Quest>,
    pub(crate) draft: Draft,
    /// What the prediction rests on.
    pub(crate) feature: placement::Feature,
    pub(crate) tenant: u64,
    pub(crate) succeeded: bool,
    pub(crate) reservation: Option<Reservation>,
    /// Of the attempt; ends with the answer.
    pub(crate) span: Span,
}

impl Relay {
    pub(crate) fn new(
        first: Option<Bytes>,
        body: engine::ResponseBody,
        ticket: Ticket,
        events: bool,
    ) -> Self {
        let body = Prefixed { first, rest: body };
        Self {
            body,
            scanner: UsageScanner::new(),
            ticket: Some(ticket),
            events,
            between_events: true,
            ended: false,
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        if let Some(mut ticket) = self.ticket.take() {
            if let Some(reservation) = ticket.reservation.take() {
                reservation.finish();
            }
            let (shared, usage) = (Arc::clone(&ticket.shared), self.scanner.usage());
            if let Some(quest) = ticket.quest.take().filter(|_| ticket.succeeded) {
                quest.answered(usage.and_then(|usage| usage.cached_tokens()));
            }
            shared.verify(&ticket, usage);
        }
    }

    /// Tells the client of a failure in the middle: within an event stream as its last event, else by a broken
    /// connection.
    fn fail(&mut self, error: engine::Error) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.ended = true;
        if let Some(ticket) = self.ticket.take() {
            ticket.shared.metrics.verdict("failed");
            ticket.span.record("failure", "broken");
            tracing::warn!(worker = %ticket.holder.worker, cause = %error, "answer ended early");
            ticket.shared.models.directory().failed(&ticket.holder.worker);
        }
        if self.events {
            let json = ApiError::from(error).json();
            // What an event was cut in must not swallow the error.
            let end: &[u8] = if self.between_events { b"" } else { b"\n\n" };
            let event = [end, b"data: ", &json, b"\n\n"].concat();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(event)))));
        }
        Poll::Ready(Some(Err(error.into())))
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.scanner.feed(data);
                    this.between_events = data.ends_with(b"\n\n") || data.ends_with(b"\n\r\n");
                }
                if this.body.is_end_stream() {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => this.fail(error),
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.shared.metrics.cancelled();
        }
    }
}

/// A body whose first frame was read ahead.
pub(crate) struct Prefixed {
    first: Option<Bytes>,
    rest: engine::ResponseBody,
}

impl Prefixed {
    pub(crate) const fn new(first: Bytes, rest: engine::ResponseBody) -> Self {
        Self { first: Some(first), rest }
    }
}

impl Body for Prefixed {
    type Data = Bytes;
    type Error = engine::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, engine::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.first.as_ref().map_or(0, |first| u64::try_from(first.len()).unwrap_or(u64::MAX));
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
