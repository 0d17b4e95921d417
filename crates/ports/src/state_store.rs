//! Where state survives the process that made it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::Retry;

/// Why state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("state {name:?} cannot be kept")]
pub struct Error {
    /// Whose state.
    pub name: String,
    /// The system's reason.
    #[source]
    pub source: std::io::Error,
}

impl Error {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::After(std::time::Duration::from_secs(5))
    }
}

/// Keeps one opaque value per name.
#[async_trait]
pub trait StateStore: Send + Sync + std::fmt::Debug {
    /// Reads a value; none where there is none.
    ///
    /// # Errors
    /// Go on without it, or try again later.
    async fn load(&self, name: &str) -> Result<Option<Bytes>, Error>;

    /// Replaces a value: whatever happens meanwhile, a later `load` sees the old one or the new one whole.
    ///
    /// # Errors
    /// The old value stands; try again later.
    async fn save(&self, name: &str, value: Bytes) -> Result<(), Error>;
}

/// Keeps values as long as the process.
#[derive(Debug, Default)]
pub struct InMemoryStateStore(Mutex<BTreeMap<String, Bytes>>);

#[async_trait]
impl StateStore for InMemoryStateStore {
    async fn load(&self, name: &str) -> Result<Option<Bytes>, Error> {
        Ok(self.0.lock().get(name).cloned())
    }

    async fn save(&self, name: &str, value: Bytes) -> Result<(), Error> {
        self.0.lock().insert(name.to_owned(), value);
        Ok(())
    }
}
