//! The registry on one etcd client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{Client, Compare, CompareOp, ConnectOptions, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use parking_lot::Mutex;
use ports::Registry;
use ports::registry::{Entry, Error, Lease, Watch};
use tokio::sync::OnceCell;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::config::{self, Config, Refusal};
use crate::{lease, watch};

/// How long one request may take.
const REQUEST_DEADLINE: Duration = Duration::from_secs(2);

/// An etcd client; cheap to clone. Dropping the last clone ends its watches and lets its leases expire.
#[derive(Clone)]
pub struct EtcdRegistry {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Connection,
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for EtcdRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdRegistry")
            .field("endpoints", &self.shared.connection.0.shown)
            .finish_non_exhaustive()
    }
}

/// The client, made when it is first needed: with a user, making it takes a server.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Target>);

struct Target {
    endpoints: Vec<String>,
    shown: String,
    options: ConnectOptions,
    client: OnceCell<Client>,
}

/// Bounds a request in time; whatever goes wrong, the registry cannot be used for now.
pub(crate) fn within<T>(
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> impl Future<Output = Result<T, Error>> {
    // The client's futures are large.
    let request = Box::pin(request);
    async move {
        match timeout(REQUEST_DEADLINE, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::debug!(%error, "registry request failed");
                Err(Error::Unreachable)
            }
            Err(_) => {
                tracing::debug!("registry request timed out");
                Err(Error::Unreachable)
            }
        }
    }
}

impl Connection {
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let Target { endpoints, options, client, .. } = &*self.0;
        let connect = || within(Client::connect(endpoints, Some(options.clone())));
        client.get_or_try_init(connect).await.cloned()
    }

    /// Lists a prefix, with the revision that the listing shows.
    pub(crate) async fn list(&self, prefix: &str) -> Result<(Vec<Entry>, i64), Error> {
        let mut client = self.client().await?;
        let listed = within(client.get(prefix, Some(GetOptions::new().with_prefix()))).await?;
        let revision = listed.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok((listed.kvs().iter().filter_map(entry).collect(), revision))
    }
}

/// Reads an entry; a key that is not UTF-8 is none of ours.
pub(crate) fn entry(kv: &KeyValue) -> Option<Entry> {
    let key = kv.key_str().ok()?.to_owned();
    Some(Entry { key, value: Bytes::copy_from_slice(kv.value()) })
}

impl EtcdRegistry {
    /// Makes a client; returns without waiting for a server.
    ///
    /// # Errors
    /// The configuration cannot work; tell its owner.
    pub async fn connect(config: &Config) -> Result<Self, config::Error> {
        if config.endpoints.is_empty() {
            return Err(config::Error::NoEndpoint);
        }
        let options = config.options().await?;
        let client = OnceCell::new();
        if config.user.is_none() {
            let connected = Box::pin(Client::connect(&config.endpoints, Some(options.clone()))).await;
            let connected =
                connected.map_err(|source| config::Error::Connect { endpoints: config.shown(), source })?;
            drop(client.set(connected));
        }
        let shown = config.shown();
        let target = Target { endpoints: config.endpoints.clone(), shown, options, client };
        let shared = Shared { connection: Connection(Arc::new(target)), tasks: Mutex::new(JoinSet::new()) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Asks once whether this client may read a prefix, and says what is wrong where a list only says that the registry
    /// cannot be reached.
    ///
    /// # Errors
    /// `Refused` is for whoever configures it; `Late` means to try again.
    pub async fn check(&self, prefix: &str) -> Result<(), config::Error> {
        let Target { endpoints, shown, options, client } = &*self.shared.connection.0;
        let asking = async {
            let connect = || Client::connect(endpoints, Some(options.clone()));
            let mut client = client.get_or_try_init(connect).await?.clone();
            client.get(prefix, Some(GetOptions::new().with_prefix().with_count_only())).await
        };
        let source = match timeout(REQUEST_DEADLINE, Box::pin(asking)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(source)) => source,
            Err(_) => return Err(config::Error::Late { endpoints: shown.clone(), source: None }),
        };
        let endpoints = shown.clone();
        Err(match Refusal::of(&source) {
            Some(reason) => config::Error::Refused { endpoints, reason, source },
            None => config::Error::Late { endpoints, source: Some(source) },
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.shared.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }
}

#[async_trait]
impl Registry for EtcdRegistry {
    async fn register(&self, entry: Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        let connection = &self.shared.connection;
        let mut client = connection.client().await?;
        let ttl_s = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1);
        let id = within(client.lease_grant(ttl_s, None)).await?.id();
        let Entry { key, value } = entry;
        let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let put = TxnOp::put(key.as_str(), value.to_vec(), Some(PutOptions::new().with_lease(id)));
        let created = within(client.txn(Txn::new().when([absent]).and_then([put]))).await;
        if !matches!(&created, Ok(created) if created.succeeded()) {
            // An unused lease would expire by itself; so does one whose transaction's outcome is unknown.
            drop(within(client.lease_revoke(id)).await);
            created?;
            return Err(Error::Taken { key });
        }
        let (leased, keeper) = lease::keep(connection.clone(), id, key, ttl);
        Ok(Box::new(leased.kept_by(self.spawn(keeper))))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        Ok(self.shared.connection.list(prefix).await?.0)
    }

    async fn watch(&self, prefix: &str) -> Result<Box<dyn Watch>, Error> {
        let listing = self.shared.connection.list(prefix).await?;
        let (watching, pump) = watch::follow(self.shared.connection.clone(), prefix.to_owned(), listing);
        Ok(Box::new(watching.pumped_by(self.spawn(pump))))
    }
}
