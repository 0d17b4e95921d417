//! Name resolution that cannot use up the process's threads.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Finds the addresses of a host and port; may block.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

impl Resolver {
    /// Wraps a lookup.
    #[must_use]
    pub fn new(lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }
}

impl Default for Resolver {
    /// The system's.
    fn default() -> Self {
        Self::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Resolves names, a bounded number at once.
///
/// The resolver blocks its thread for as long as it likes, also after the fetch has given up; so the permit goes with
/// the thread. What else needs threads keeps its own.
#[derive(Debug)]
pub(super) struct Names {
    resolver: Resolver,
    lookups: Arc<Semaphore>,
}

impl Names {
    pub(super) fn new(resolver: Resolver, lookups_max: usize) -> Self {
        Self { resolver, lookups: Arc::new(Semaphore::new(lookups_max)) }
    }

    /// Returns the addresses of a name.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let (host, Resolver(lookup)) = (host.to_owned(), self.resolver.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let found = lookup(&host, port);
            drop(permit);
            found
        });
        looking.await.map_err(io::Error::other)?
    }
}
