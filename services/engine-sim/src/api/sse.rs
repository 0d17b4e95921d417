//! Server-sent events.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::rank::Chunk;

/// Events that go out together.
#[derive(Debug, Default)]
pub(crate) struct Events(Vec<u8>);

impl Events {
    /// Adds an event.
    pub(crate) fn push(&mut self, event: &impl Serialize) {
        self.0.extend_from_slice(b"data: ");
        if let Err(error) = serde_json::to_writer(&mut self.0, event) {
            tracing::warn!(%error, "stream event cannot be written");
        }
        self.0.extend_from_slice(b"\n\n");
    }

    /// Adds the event that ends a stream.
    pub(crate) fn push_done(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }
}

/// Turns chunks into events, and says when the last one has been.
pub(crate) trait Render: Send + 'static {
    /// Adds the events of a chunk; returns whether the stream ends with them.
    fn render(&mut self, chunk: Chunk, events: &mut Events) -> bool;
}

/// Answers with a stream that ends when `render` says so, or early if the engine stops.
pub(crate) fn respond(chunks: mpsc::Receiver<Chunk>, render: impl Render) -> Response {
    let state = Some((chunks, render));
    let events = stream::unfold(state, |state| async move {
        let (mut chunks, mut render) = state?;
        let chunk = chunks.recv().await;
        // A stream cut short must not look complete: the connection is broken off instead.
        let Some(chunk) = chunk else {
            return Some((Err(std::io::Error::other("the engine has stopped")), None));
        };
        let mut events = Events::default();
        let done = render.render(chunk, &mut events);
        Some((Ok(Bytes::from(events.0)), (!done).then_some((chunks, render))))
    });
    ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(events)).into_response()
}
