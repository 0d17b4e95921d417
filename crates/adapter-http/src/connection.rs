//! One HTTP/1.1 connection, driven by whoever uses it.
//!
//! The connection has no task of its own: the future that waits for the head, and the body that is read, poll it.
//! So a chunk wakes one task on its way through, and dropping either closes the socket at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::chunks::Chunks;
use crate::transport::Transport;

type Driver = http1::Connection<TokioIo<Transport>, Chunks>;

/// A connection between exchanges.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: http1::SendRequest<Chunks>,
    driver: Pin<Box<Driver>>,
    ended: bool,
}

/// An exchange that got no response head.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The transport's words.
    pub(crate) reason: String,
}

impl Connection {
    /// Starts HTTP on a transport; heads larger than `head_bytes_max` are refused.
    pub(crate) async fn start(transport: Transport, head_bytes_max: usize) -> Result<Self, Failed> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(head_bytes_max.max(8192)).max_headers(256);
        let (sender, driver) =
            builder.handshake(TokioIo::new(transport)).await.map_err(|error| failed(&error))?;
        Ok(Self { sender, driver: Box::pin(driver), ended: false })
    }

    /// Says whether another exchange can start: the peer has not closed, and the last exchange is over.
    pub(crate) fn usable(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.drive(&mut cx);
        !self.ended && self.sender.is_ready()
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn exchange(mut self, request: Request<Chunks>) -> Result<Response<Streaming>, Failed> {
        let response = {
            let mut head = pin!(self.sender.try_send_request(request));
            poll_fn(|cx| {
                if let Poll::Ready(head) = head.as_mut().poll(cx) {
                    return Poll::Ready(head.map_err(|error| failed(&error.into_error())));
                }
                self.ended = self.ended || self.driver.as_mut().poll(cx).is_ready();
                match head.as_mut().poll(cx) {
                    Poll::Ready(head) => Poll::Ready(head.map_err(|error| failed(&error.into_error()))),
                    Poll::Pending if self.ended => {
                        Poll::Ready(Err(Failed { reason: "closed before the head".to_owned() }))
                    }
                    Poll::Pending => Poll::Pending,
                }
            })
            .await?
        };
        Ok(response.map(|incoming| Streaming { incoming, connection: self }))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.ended = self.driver.as_mut().poll(cx).is_ready();
        }
    }
}

fn failed(error: &hyper::Error) -> Failed {
    let mut reason = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        reason = format!("{reason}: {source}");
    }
    Failed { reason }
}

/// A response body with the connection it comes by.
#[derive(Debug)]
pub(crate) struct Streaming {
    incoming: Incoming,
    connection: Connection,
}

impl Streaming {
    /// Gives the connection back after the body's end.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }
}

impl Body for Streaming {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let first = Pin::new(&mut self.incoming).poll_frame(cx);
        let frame = if first.is_pending() {
            self.connection.drive(cx);
            Pin::new(&mut self.incoming).poll_frame(cx)
        } else {
            first
        };
        frame.map_err(|error| failed(&error))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
