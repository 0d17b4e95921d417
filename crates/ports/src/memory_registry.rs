//! The registry within one process, with faults on demand.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::Clock;
use crate::registry::{Entry, Error, Event, Lease, Registry, Watch};

/// How many events wait for a watcher before it is told everything anew instead.
const EVENTS_MAX: usize = 1024;

/// One client of an in-memory registry; its clones are the same client.
#[derive(Clone)]
pub struct InMemoryRegistry {
    server: Arc<Server>,
    client: Arc<Client>,
}

/// What all clients share.
struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    keepers: Mutex<JoinSet<()>>,
}

/// One client's connection.
struct Client {
    reachable: AtomicBool,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, (Bytes, u64)>,
    leases: BTreeMap<u64, watch::Sender<bool>>,
    watchers: BTreeMap<u64, Watcher>,
    next_id: u64,
    closed: bool,
}

struct Watcher {
    prefix: String,
    events: VecDeque<Event>,
    reset: bool,
    client: Weak<Client>,
    changed: Arc<Notify>,
}

impl fmt::Debug for InMemoryRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryRegistry")
            .field("reachable", &self.client.is_reachable())
            .finish_non_exhaustive()
    }
}

impl Client {
    fn new() -> Arc<Self> {
        Arc::new(Self { reachable: AtomicBool::new(true) })
    }

    fn is_reachable(&self) -> bool {
        self.reachable.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<(), Error> {
        if self.is_reachable() { Ok(()) } else { Err(Error::Unreachable) }
    }
}

impl InMemoryRegistry {
    /// Makes an empty registry and its first client; leases run on `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let server = Server { clock, state: Mutex::default(), keepers: Mutex::new(JoinSet::new()) };
        Self { server: Arc::new(server), client: Client::new() }
    }

    /// Makes another client of the same registry.
    #[must_use]
    pub fn attach(&self) -> Self {
        Self { server: Arc::clone(&self.server), client: Client::new() }
    }

    /// Cuts this client off, or connects it again: its leases are not renewed and its watches stand still meanwhile.
    pub fn set_reachable(&self, reachable: bool) {
        let before = self.client.reachable.swap(reachable, Ordering::SeqCst);
        if !before && reachable {
            let client = Arc::as_ptr(&self.client);
            self.server.state.lock().reset_watchers(|watcher| watcher.client.as_ptr() == client);
        }
    }

    /// Lets the lease of a key expire at once.
    pub fn expire(&self, key: &str) {
        let mut state = self.server.state.lock();
        if let Some((_, lease)) = state.entries.get(key) {
            let lease = *lease;
            state.end_lease(lease);
        }
    }

    /// Forgets history, as a compaction does: every watch begins anew.
    pub fn compact(&self) {
        self.server.state.lock().reset_watchers(|_| true);
    }

    /// Ends all watches of all clients.
    pub fn close(&self) {
        let mut state = self.server.state.lock();
        state.closed = true;
        state.watchers.values().for_each(|watcher| watcher.changed.notify_one());
    }
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn listing(&self, prefix: &str) -> Vec<Entry> {
        let from = self.entries.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, (value, _))| Entry { key: key.clone(), value: value.clone() })
            .collect()
    }

    fn announce(&mut self, key: &str, event: &Event) {
        for watcher in self.watchers.values_mut().filter(|watcher| key.starts_with(&watcher.prefix)) {
            if watcher.reset || !watcher.client.upgrade().is_some_and(|client| client.is_reachable()) {
                continue;
            }
            if watcher.events.len() < EVENTS_MAX {
                watcher.events.push_back(event.clone());
            } else {
                watcher.reset();
            }
            watcher.changed.notify_one();
        }
    }

    fn reset_watchers(&mut self, which: impl Fn(&Watcher) -> bool) {
        for watcher in self.watchers.values_mut().filter(|watcher| which(watcher)) {
            watcher.reset();
            watcher.changed.notify_one();
        }
    }

    fn put(&mut self, entry: Entry, lease: u64) {
        let key = entry.key.clone();
        self.entries.insert(key.clone(), (entry.value.clone(), lease));
        self.announce(&key, &Event::Put(entry));
    }

    fn end_lease(&mut self, lease: u64) {
        let Some(lost) = self.leases.remove(&lease) else { return };
        let keys = self.entries.iter().filter(|(_, (_, owner))| *owner == lease);
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.entries.remove(&key);
            self.announce(&key, &Event::Deleted { key: key.clone() });
        }
        lost.send_replace(true);
    }
}

impl Watcher {
    fn reset(&mut self) {
        self.events.clear();
        self.reset = true;
    }
}

#[async_trait]
impl Registry for InMemoryRegistry {
    async fn register(&self, entry: Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.client.check()?;
        let key = entry.key.clone();
        let held = Arc::new(());
        let mut state = self.server.state.lock();
        if state.entries.contains_key(&key) {
            return Err(Error::Taken { key });
        }
        let id = state.id();
        let lost = watch::Sender::new(false);
        let leased = Leased {
            id,
            key,
            server: Arc::clone(&self.server),
            client: Arc::clone(&self.client),
            lost: lost.subscribe(),
            _held: Arc::clone(&held),
        };
        state.leases.insert(id, lost);
        state.put(entry, id);
        drop(state);
        let keeper =
            keep(Arc::downgrade(&self.server), Arc::clone(&self.client), Arc::downgrade(&held), id, ttl);
        let mut keepers = self.server.keepers.lock();
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper);
        Ok(Box::new(leased))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        self.client.check()?;
        Ok(self.server.state.lock().listing(prefix))
    }

    async fn watch(&self, prefix: &str) -> Result<Box<dyn Watch>, Error> {
        self.client.check()?;
        let changed = Arc::new(Notify::new());
        let mut state = self.server.state.lock();
        let id = state.id();
        let watcher = Watcher {
            prefix: prefix.to_owned(),
            events: VecDeque::new(),
            reset: true,
            client: Arc::downgrade(&self.client),
            changed: Arc::clone(&changed),
        };
        state.watchers.insert(id, watcher);
        drop(state);
        Ok(Box::new(Watching {
            id,
            changed,
            server: Arc::clone(&self.server),
            client: Arc::clone(&self.client),
        }))
    }
}

/// Renews a lease while its handle lives and its client is connected; ends it when it was not renewed for `ttl`.
async fn keep(server: Weak<Server>, client: Arc<Client>, held: Weak<()>, lease: u64, ttl: Duration) {
    let Some(clock) = server.upgrade().map(|server| Arc::clone(&server.clock)) else { return };
    let mut renewed = clock.now();
    loop {
        clock.sleep(ttl / 8).await;
        let Some(server) = server.upgrade() else { return };
        let mut state = server.state.lock();
        if !state.leases.contains_key(&lease) {
            return;
        }
        if client.is_reachable() && held.strong_count() > 0 {
            renewed = clock.now();
        } else if clock.now().saturating_sub(renewed) >= ttl {
            state.end_lease(lease);
            return;
        }
    }
}

struct Leased {
    id: u64,
    key: String,
    server: Arc<Server>,
    client: Arc<Client>,
    lost: watch::Receiver<bool>,
    _held: Arc<()>,
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).finish_non_exhaustive()
    }
}

#[async_trait]
impl Lease for Leased {
    async fn update(&self, value: Bytes) -> Result<(), Error> {
        self.client.check()?;
        let mut state = self.server.state.lock();
        if !state.leases.contains_key(&self.id) {
            return Err(Error::Expired { key: self.key.clone() });
        }
        state.put(Entry { key: self.key.clone(), value }, self.id);
        Ok(())
    }

    async fn lost(&self) {
        // The sender is dropped only after it said so.
        drop(self.lost.clone().wait_for(|lost| *lost).await);
    }

    async fn revoke(self: Box<Self>) -> Result<(), Error> {
        self.client.check()?;
        self.server.state.lock().end_lease(self.id);
        Ok(())
    }
}

struct Watching {
    id: u64,
    changed: Arc<Notify>,
    server: Arc<Server>,
    client: Arc<Client>,
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.server.state.lock().watchers.remove(&self.id);
    }
}

impl Watching {
    /// Takes the next event if there is one; `Err` once the registry is closed.
    fn take(&self) -> Result<Option<Event>, ()> {
        let mut state = self.server.state.lock();
        let closed = state.closed;
        let Some(watcher) = state.watchers.get_mut(&self.id) else { return Err(()) };
        if watcher.reset && self.client.is_reachable() && !closed {
            watcher.reset = false;
            let prefix = watcher.prefix.clone();
            return Ok(Some(Event::Reset(state.listing(&prefix))));
        }
        match watcher.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None if closed => Err(()),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl Watch for Watching {
    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.take() {
                Ok(Some(event)) => return Some(event),
                Ok(None) => self.changed.notified().await,
                Err(()) => return None,
            }
        }
    }
}
