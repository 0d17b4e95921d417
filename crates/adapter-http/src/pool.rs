//! Idle connections to engines.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use ports::engine::Endpoint;
use tokio::time::Instant;

use crate::connection::Connection;

/// Keeps idle connections per endpoint, the most recently used on top.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<Endpoint, Vec<Idle>>>,
    per_endpoint_max: usize,
    keep: Duration,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(per_endpoint_max: usize, keep: Duration) -> Self {
        Self { idle: Mutex::default(), per_endpoint_max, keep }
    }

    /// Takes the freshest connection that still works.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Option<Connection> {
        loop {
            let mut idle = self.idle.lock().get_mut(endpoint)?.pop()?;
            if idle.since.elapsed() <= self.keep && idle.connection.usable() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection for later, unless it has ended or there are enough; drops those kept too long.
    pub(crate) fn put(&self, endpoint: &Endpoint, mut connection: Connection) {
        if !connection.usable() {
            return;
        }
        let since = Instant::now();
        let mut all = self.idle.lock();
        let idle = all.entry(endpoint.clone()).or_default();
        let stale = idle.partition_point(|it| since.duration_since(it.since) > self.keep);
        let mut closing: Vec<Idle> = idle.drain(..stale).collect();
        if idle.len() < self.per_endpoint_max {
            idle.push(Idle { connection, since });
        }
        if all.len() > ENDPOINTS_MAX {
            all.retain(|other, idle| {
                let kept = other == endpoint || idle.last().is_some_and(|it| it.since.elapsed() <= self.keep);
                if !kept {
                    closing.append(idle);
                }
                kept
            });
        }
        drop(all);
        drop(closing);
    }
}

/// Past this many endpoints, those without a fresh connection are forgotten.
const ENDPOINTS_MAX: usize = 256;
