//! A request body that is a list of chunks.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Sends chunks one after the other, none copied; its length is known.
#[derive(Debug)]
pub(crate) struct Chunks {
    left: std::vec::IntoIter<Bytes>,
    bytes: u64,
}

impl Chunks {
    pub(crate) fn new(chunks: Vec<Bytes>) -> Self {
        let bytes = chunks.iter().map(length).sum();
        Self { left: chunks.into_iter(), bytes }
    }
}

fn length(chunk: &Bytes) -> u64 {
    u64::try_from(chunk.len()).unwrap_or(u64::MAX)
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.left.find(|chunk| !chunk.is_empty());
        if let Some(chunk) = &next {
            self.bytes = self.bytes.saturating_sub(length(chunk));
        }
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}
