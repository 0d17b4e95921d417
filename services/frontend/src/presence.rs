//! The frontend's entry in the registry.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ports::registry::{Entry, Lease};
use ports::{Registry, Retry};
use serde_json::json;

use crate::shared::Shared;

/// How long the entry outlives a frontend that crashed.
const TTL: Duration = Duration::from_secs(10);

/// Keeps the frontend's entry under a lease until the frontend ends; nothing here depends on it.
pub(crate) async fn keep(
    registry: Arc<dyn Registry>,
    shared: Arc<Shared>,
    (namespace, address): (String, SocketAddr),
) {
    let key = wire::registry_key::frontend(&namespace, &shared.id);
    let value = Bytes::from(json!({"id": shared.id, "listen": address.to_string()}).to_string());
    loop {
        let entry = Entry { key: key.clone(), value: value.clone() };
        let lease = tokio::select! {
            lease = enter(&*registry, entry, &shared) => lease,
            () = shared.stop.cancelled() => return,
        };
        tokio::select! {
            () = lease.lost() => tracing::warn!("the frontend's lease was lost, registering again"),
            () = shared.stop.cancelled() => {
                if let Err(cause) = lease.revoke().await {
                    tracing::debug!(%cause, "the frontend's entry was not deleted");
                }
                return;
            }
        }
    }
}

/// Tries until the entry is there.
async fn enter(registry: &dyn Registry, entry: Entry, shared: &Shared) -> Box<dyn Lease> {
    loop {
        match registry.register(entry.clone(), TTL).await {
            Ok(lease) => return lease,
            Err(cause) => {
                tracing::debug!(%cause, "the frontend is not registered yet");
                let pause = match cause.retry() {
                    Retry::After(pause) => pause,
                    Retry::Never => TTL,
                };
                shared.clock.sleep(pause).await;
            }
        }
    }
}
