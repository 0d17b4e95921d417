//! Discovery: leased keys, and watching them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Retry;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Slash-separated path.
    pub key: String,
    /// Opaque to the registry.
    pub value: Bytes,
}

/// What a watch yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All entries under the prefix; what the watcher knew before is void. Always the first event.
    Reset(Vec<Entry>),
    /// An entry was created or changed.
    Put(Entry),
    /// An entry was deleted or its lease expired.
    Deleted {
        /// Its key.
        key: String,
    },
}

/// Why a registry call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The registry does not answer.
    #[error("registry is unreachable")]
    Unreachable,
    /// Another lease holds the key.
    #[error("key {key} is taken")]
    Taken {
        /// The key.
        key: String,
    },
    /// The lease has expired; register again.
    #[error("lease of key {key} has expired")]
    Expired {
        /// The key.
        key: String,
    },
}

impl Error {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Unreachable | Self::Taken { .. } => Retry::After(Duration::from_millis(500)),
            Self::Expired { .. } => Retry::Never,
        }
    }
}

/// Leased keys, listed and watched by prefix.
#[async_trait]
pub trait Registry: Send + Sync + std::fmt::Debug {
    /// Creates a key that must not exist, under a lease that the adapter keeps alive until it is dropped.
    async fn register(&self, entry: Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error>;

    /// Lists the entries under a prefix.
    async fn list(&self, prefix: &str) -> Result<Vec<Entry>, Error>;

    /// Watches a prefix; the watch outlives disconnections.
    async fn watch(&self, prefix: &str) -> Result<Box<dyn Watch>, Error>;
}

/// A registered key; dropping it lets the lease expire.
#[async_trait]
pub trait Lease: Send + Sync + std::fmt::Debug {
    /// Replaces the value.
    async fn update(&self, value: Bytes) -> Result<(), Error>;

    /// Completes when the lease is lost: the owner registers again. Safe to cancel.
    async fn lost(&self);

    /// Deletes the key at once.
    async fn revoke(self: Box<Self>) -> Result<(), Error>;
}

/// One watch; dropping it ends it.
#[async_trait]
pub trait Watch: Send + std::fmt::Debug {
    /// Waits for the next event; none once the registry is closed. Safe to cancel.
    async fn next(&mut self) -> Option<Event>;
}
