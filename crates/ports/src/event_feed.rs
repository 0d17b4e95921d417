//! An engine's KV-event feed, one data-parallel rank.

pub mod conformance;
pub mod memory;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Retry;

/// One batch as the engine published it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The publisher's sequence number, from 0 at its start.
    pub seq: u64,
    /// Engine-specific encoding.
    pub payload: Bytes,
}

/// What a feed yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The link to an engine process is there, for the first time or again: batches may have been missed, and it may be
    /// another process.
    Connected,
    /// A batch.
    Frame(Frame),
}

/// Past batches, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Consecutive batches; the first may be later than asked for, where the engine no longer has it.
    pub frames: Vec<Frame>,
    /// Whether the last frame is the last the engine has; if not, ask again from behind it.
    pub complete: bool,
}

/// Why a feed call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint cannot be bound or connected to.
    #[error("event feed at {endpoint} failed")]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// The transport's reason.
        #[source]
        source: std::io::Error,
    },
    /// The feed has no replay endpoint.
    #[error("event feed has no replay endpoint")]
    NoReplay,
    /// The replay did not end in time.
    #[error("replay from sequence {from} did not end within {deadline:?}")]
    ReplayTimeout {
        /// First sequence asked for.
        from: u64,
        /// How long the caller waited.
        deadline: Duration,
    },
    /// A message does not have the feed's layout; it is dropped.
    #[error("malformed feed message of {parts} parts")]
    Malformed {
        /// Number of message parts.
        parts: usize,
    },
}

impl Error {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Endpoint { .. } | Self::ReplayTimeout { .. } => Retry::After(Duration::from_millis(500)),
            Self::Malformed { .. } => Retry::After(Duration::ZERO),
            Self::NoReplay => Retry::Never,
        }
    }
}

/// Receives batches, and asks for past ones again.
///
/// Batches come in order; lost ones show as a hole in their numbers, an engine's restart as numbers from 0 again.
#[async_trait]
pub trait EventFeed: Send + std::fmt::Debug {
    /// Waits for the next batch or connection. Safe to cancel.
    ///
    /// # Errors
    /// `Endpoint`: not connected; `Malformed`: one message was dropped. Call again as `retry` advises.
    async fn next(&mut self) -> Result<Received, Error>;

    /// Fetches the batches that the engine still buffers, from a sequence number on, in order. Safe to cancel.
    ///
    /// # Errors
    /// `NoReplay` for good; others: call again as `retry` advises.
    async fn replay(&mut self, from: u64, deadline: Duration) -> Result<Replay, Error>;
}
