//! Name resolution that cannot use up the process's threads.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Resolves names by the system's resolver, a bounded number at once.
///
/// The resolver blocks its thread for as long as it likes, also after the fetch has given up; so the permit goes with
/// the thread. What else needs threads keeps its own.
#[derive(Debug)]
pub(super) struct Names(Arc<Semaphore>);

impl Names {
    pub(super) fn new(lookups_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(lookups_max)))
    }

    /// Returns the addresses of a name.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(permit);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}
