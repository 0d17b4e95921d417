//! Engines that answer by script, in memory.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Endpoint, Engine, EngineStatus, Error, Request, Response, ServedModel};

/// A scripted answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body chunks, each a frame.
    pub chunks: Vec<Bytes>,
    /// What follows the chunks.
    pub then: Then,
}

/// How a scripted answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Complete.
    End,
    /// Nothing more comes, and the connection stays.
    Hang,
    /// The connection breaks.
    Break,
    /// The connection is refused before anything is sent; chunks are ignored.
    Refuse,
}

impl Reply {
    /// Makes a complete JSON answer.
    #[must_use]
    pub fn json(status: StatusCode, body: &str) -> Self {
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { status, headers, chunks: vec![Bytes::copy_from_slice(body.as_bytes())], then: Then::End }
    }

    /// Makes a complete event stream, a chunk each.
    #[must_use]
    pub fn events(chunks: &[&str]) -> Self {
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))]);
        let chunks = chunks.iter().map(|it| Bytes::copy_from_slice(it.as_bytes())).collect();
        Self { status: StatusCode::OK, headers, chunks, then: Then::End }
    }

    /// Replaces the ending.
    #[must_use]
    pub const fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// Answers a request by script.
pub type Script = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// An engine client whose engines are scripts; for tests.
#[derive(Clone, Default)]
pub struct MemoryEngine(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    scripts: HashMap<Endpoint, Script>,
    seen: Vec<(Endpoint, Request)>,
    cancelled: u64,
}

impl std::fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        f.debug_struct("MemoryEngine").field("seen", &state.seen.len()).finish_non_exhaustive()
    }
}

impl MemoryEngine {
    /// Lets an endpoint answer by a script; endpoints without one refuse connections.
    pub fn serve(&self, endpoint: &Endpoint, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        self.0.lock().scripts.insert(endpoint.clone(), Arc::new(script));
    }

    /// Returns the requests that were forwarded, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<(Endpoint, Request)> {
        self.0.lock().seen.clone()
    }

    /// Returns how many bodies were dropped before their end.
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.0.lock().cancelled
    }

    async fn text(
        &self,
        endpoint: &Endpoint,
        path: &'static str,
        deadline: Duration,
    ) -> Result<String, Error> {
        let late = Error::HeadTimeout { endpoint: endpoint.clone(), deadline };
        timeout(deadline, self.fetch(endpoint, path)).await.unwrap_or(Err(late))
    }

    async fn fetch(&self, endpoint: &Endpoint, path: &'static str) -> Result<String, Error> {
        let request = Request {
            method: http::Method::GET,
            path: http::uri::PathAndQuery::from_static(path),
            headers: HeaderMap::new(),
            body: Vec::new(),
        };
        let response = self.forward(endpoint, request).await?;
        if response.status != StatusCode::OK {
            return Err(Error::Status { endpoint: endpoint.clone(), status: response.status.as_u16() });
        }
        let bytes = response.body.collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    async fn forward(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Error> {
        let script = self.0.lock().scripts.get(endpoint).cloned();
        let reply = script.map(|script| script(&request));
        let Some(reply) = reply.filter(|reply| reply.then != Then::Refuse) else {
            let source = std::io::ErrorKind::ConnectionRefused.into();
            return Err(Error::Connect { endpoint: endpoint.clone(), source });
        };
        self.0.lock().seen.push((endpoint.clone(), request));
        if reply.chunks.is_empty() && reply.then == Then::Break {
            return Err(Error::Broken {
                endpoint: endpoint.clone(),
                reason: "closed before the head".to_owned(),
            });
        }
        let body = Scripted {
            chunks: reply.chunks.into_iter(),
            then: reply.then,
            ended: false,
            endpoint: endpoint.clone(),
            engine: self.clone(),
        };
        Ok(Response { status: reply.status, headers: reply.headers, body: body.boxed_unsync() })
    }

    async fn health(&self, endpoint: &Endpoint, deadline: Duration) -> Result<(), Error> {
        self.text(endpoint, "/health", deadline).await.map(|_| ())
    }

    async fn status(&self, endpoint: &Endpoint, deadline: Duration) -> Result<EngineStatus, Error> {
        Ok(EngineStatus::parse(&self.text(endpoint, "/metrics", deadline).await?))
    }

    async fn models(&self, endpoint: &Endpoint, deadline: Duration) -> Result<Vec<ServedModel>, Error> {
        let text = self.text(endpoint, "/v1/models", deadline).await?;
        ServedModel::parse_list(text.as_bytes())
            .map_err(|reason| Error::Unreadable { endpoint: endpoint.clone(), reason })
    }
}

struct Scripted {
    chunks: std::vec::IntoIter<Bytes>,
    then: Then,
    ended: bool,
    endpoint: Endpoint,
    engine: MemoryEngine,
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(chunk) = self.chunks.next() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match self.then {
            Then::Hang => Poll::Pending,
            Then::End | Then::Refuse => {
                self.ended = true;
                Poll::Ready(None)
            }
            Then::Break if self.ended => Poll::Ready(None),
            Then::Break => {
                self.ended = true;
                let reason = "closed in the body".to_owned();
                Poll::Ready(Some(Err(Error::Broken { endpoint: self.endpoint.clone(), reason })))
            }
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        if !self.ended {
            self.engine.0.lock().cancelled += 1;
        }
    }
}
