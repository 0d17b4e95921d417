//! Keeping a lease, and noticing that it is lost.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use ports::registry::{Error, Lease};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::registry::{Connection, within};

const RETRY: Duration = Duration::from_millis(250);

/// A key under its lease.
#[derive(Debug)]
pub(crate) struct Leased {
    id: i64,
    key: String,
    connection: Connection,
    lost: watch::Receiver<bool>,
    keeper: Option<AbortHandle>,
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// Makes the handle of a granted lease, and the task that keeps it until it is lost.
pub(crate) fn keep(
    connection: Connection,
    id: i64,
    key: String,
    ttl: Duration,
) -> (Leased, impl Future<Output = ()> + Send + 'static) {
    let (lost, watched) = watch::channel(false);
    let leased = Leased { id, key, connection: connection.clone(), lost: watched, keeper: None };
    let keeper = async move {
        let period = ttl / 3;
        let mut pause = period;
        loop {
            sleep(pause).await;
            match renew(&connection, id).await {
                Ok(true) => pause = period,
                Ok(false) => break,
                Err(_) => pause = RETRY.min(period),
            }
        }
        lost.send_replace(true);
    };
    (leased, keeper)
}

/// Renews a lease once; false if the server does not know it any more.
async fn renew(connection: &Connection, id: i64) -> Result<bool, Error> {
    let mut client = connection.client().await?;
    if within(client.lease_keep_alive(id)).await.is_ok() {
        return Ok(true);
    }
    // An expired lease and a broken stream look alike here; its remaining time tells them apart.
    let remaining = within(client.lease_time_to_live(id, None)).await?;
    Ok(remaining.ttl() > 0)
}

impl Leased {
    pub(crate) fn kept_by(mut self, keeper: AbortHandle) -> Self {
        self.keeper = Some(keeper);
        self
    }
}

#[async_trait]
impl Lease for Leased {
    async fn update(&self, value: Bytes) -> Result<(), Error> {
        let mut client = self.connection.client().await?;
        let key = self.key.as_str();
        let ours = Compare::lease(key, CompareOp::Equal, self.id);
        let put = TxnOp::put(key, value.to_vec(), Some(PutOptions::new().with_lease(self.id)));
        let updated = within(client.txn(Txn::new().when([ours]).and_then([put]))).await?;
        if updated.succeeded() { Ok(()) } else { Err(Error::Expired { key: self.key.clone() }) }
    }

    async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // The keeper ended with the registry, not with the lease.
            std::future::pending::<()>().await;
        }
    }

    async fn revoke(self: Box<Self>) -> Result<(), Error> {
        let mut client = self.connection.client().await?;
        within(client.lease_revoke(self.id)).await.map(drop)
    }
}
