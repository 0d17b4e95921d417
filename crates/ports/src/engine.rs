//! An engine's HTTP interface: requests forwarded to it, and what it says of itself.

mod endpoint;
pub mod memory;
mod models;
mod status;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;

pub use endpoint::{Endpoint, Malformed};
pub use status::{EngineStatus, RankStatus};

use crate::Retry;

/// A request for an engine; the body is sent as the chunks stand, without copying.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query below the endpoint's own path.
    pub path: PathAndQuery,
    /// Headers; the adapter adds `host` and `content-length`.
    pub headers: HeaderMap,
    /// The body, in order; its length is the sum.
    pub body: Vec<Bytes>,
}

/// An engine's answer: its head is there, its body arrives.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers without hop-by-hop ones.
    pub headers: HeaderMap,
    /// The body as the engine frames it; dropping it cancels the request.
    pub body: ResponseBody,
}

/// A streamed body.
pub type ResponseBody = UnsyncBoxBody<Bytes, Error>;

/// A model that an engine lists under `/v1/models`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// The name clients use.
    pub id: String,
    /// Path or name of the weights, if told.
    pub root: Option<String>,
    /// The base model of an adapter.
    pub parent: Option<String>,
    /// Longest context, in tokens, if told.
    pub context_tokens_max: Option<u32>,
}

/// Why a call to an engine failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection; nothing was sent.
    #[error("engine at {endpoint} cannot be reached")]
    Connect {
        /// The engine.
        endpoint: Endpoint,
        /// The transport's reason.
        #[source]
        source: std::io::Error,
    },
    /// No response head in time.
    #[error("engine at {endpoint} sent no response head within {deadline:?}")]
    HeadTimeout {
        /// The engine.
        endpoint: Endpoint,
        /// How long the caller waited.
        deadline: Duration,
    },
    /// The body stalled.
    #[error("engine at {endpoint} sent nothing for {deadline:?}")]
    Idle {
        /// The engine.
        endpoint: Endpoint,
        /// How long nothing came.
        deadline: Duration,
    },
    /// The connection ended in the middle of an exchange.
    #[error("engine at {endpoint} broke the connection: {reason}")]
    Broken {
        /// The engine.
        endpoint: Endpoint,
        /// The transport's words.
        reason: String,
    },
    /// A question about the engine itself was answered with an unexpected status.
    #[error("engine at {endpoint} answered {status}")]
    Status {
        /// The engine.
        endpoint: Endpoint,
        /// HTTP status.
        status: u16,
    },
    /// A question about the engine itself was answered with something unreadable.
    #[error("engine at {endpoint} sent an unreadable answer: {reason}")]
    Unreadable {
        /// The engine.
        endpoint: Endpoint,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Connect { .. } | Self::HeadTimeout { .. } | Self::Idle { .. } | Self::Broken { .. } => {
                Retry::After(Duration::from_millis(500))
            }
            Self::Status { .. } | Self::Unreadable { .. } => Retry::After(Duration::from_secs(2)),
        }
    }

    /// Says whether the engine is certainly not listening: a refused connection.
    #[must_use]
    pub fn refused(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == std::io::ErrorKind::ConnectionRefused)
    }

    /// Says whether the engine has certainly not seen the request.
    #[must_use]
    pub const fn unsent(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }
}

/// Talks to engines; one client serves all of them.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Forwards a request and returns once the response head is there.
    ///
    /// Dropping the future, or the body it yields, cancels the request at the engine at once.
    ///
    /// # Errors
    /// Any HTTP status is a response; an error means that there is none. Try another worker.
    async fn forward(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Error>;

    /// Probes `/health`.
    ///
    /// # Errors
    /// The engine is not healthy, or not there.
    async fn health(&self, endpoint: &Endpoint, deadline: Duration) -> Result<(), Error>;

    /// Reads `/metrics`.
    ///
    /// # Errors
    /// Keep the last status and let it age.
    async fn status(&self, endpoint: &Endpoint, deadline: Duration) -> Result<EngineStatus, Error>;

    /// Reads `/v1/models`.
    ///
    /// # Errors
    /// Ask again later.
    async fn models(&self, endpoint: &Endpoint, deadline: Duration) -> Result<Vec<ServedModel>, Error>;
}
