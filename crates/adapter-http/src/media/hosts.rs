//! How many fetches run at once, in all and per host.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counts fetches per host.
#[derive(Debug)]
pub(super) struct Hosts {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    per_host_max: usize,
}

/// A running fetch.
#[derive(Debug)]
pub(super) struct Permit {
    _host: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Hosts {
    pub(super) fn new(all_max: usize, per_host_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max)), hosts: Mutex::default(), per_host_max }
    }

    /// Waits for a place; the host's first, so that one slow host cannot fill the whole.
    pub(super) async fn enter(&self, host: &str) -> Permit {
        let semaphore = {
            let mut hosts = self.hosts.lock();
            if hosts.len() >= HOSTS_KEPT {
                hosts.retain(|_, it| Arc::strong_count(it) > 1);
            }
            let made = || Arc::new(Semaphore::new(self.per_host_max));
            Arc::clone(hosts.entry(host.to_owned()).or_insert_with(made))
        };
        let _host = semaphore.acquire_owned().await.ok();
        let _all = Arc::clone(&self.all).acquire_owned().await.ok();
        Permit { _host, _all }
    }
}

/// Past this many hosts, those without a fetch are forgotten.
const HOSTS_KEPT: usize = 1024;
