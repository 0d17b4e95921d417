//! An engine's KV-event feed, one data-parallel rank.

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
    /// A message does not have the feed's layout.
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
            Self::Endpoint { .. } | Self::ReplayTimeout { .. } | Self::Malformed { .. } => {
                Retry::After(Duration::from_millis(500))
            }
            Self::NoReplay => Retry::Never,
        }
    }
}

/// Receives batches, and asks for past ones again.
#[async_trait]
pub trait EventFeed: Send + std::fmt::Debug {
    /// Waits for the next batch. Safe to cancel.
    async fn next(&mut self) -> Result<Frame, Error>;

    /// Fetches the batches that the engine still buffers, from a sequence number on, in order.
    async fn replay(&mut self, from: u64, deadline: Duration) -> Result<Vec<Frame>, Error>;
}
