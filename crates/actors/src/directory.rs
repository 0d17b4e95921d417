//! Parent: the node · Asks: nobody (registry and engines through children)
//! Bound: 1,024 waiting messages, 64 children, 4,096 workers
//! When it dies: the published fleet stays; the next life resumes its rows and watches anew.

mod fleet;
mod last_view;
mod table;

use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Me, Node, Spec};
use bytes::Bytes;
use identity::WorkerId;
use membership::presence::{Bounds, Signal};
use ports::engine::Endpoint;
use ports::registry::{self, Entry, Event, Watch};
use ports::state_store;
use ports::{Clock, Engine, Registry, StateStore};
use tokio::sync::watch;

pub use fleet::{Fleet, Seat, Served, Worker};
pub use table::Pulse;
use table::Table;

use crate::published::Published;

/// The directory of workers; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct DirectoryHandle {
    address: Address<Msg>,
    published: Arc<Published<Fleet>>,
}

/// What a directory needs.
#[derive(Clone, Debug)]
pub struct DirectoryArgs {
    /// The namespace whose workers are watched.
    pub namespace: String,
    /// Where cards are.
    pub registry: Arc<dyn Registry>,
    /// Probes suspects.
    pub engine: Arc<dyn Engine>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// When signals count as lost.
    pub bounds: Bounds,
    /// Where the last view is kept for a restart while the registry is down; none to forget it.
    pub last_view: Option<Arc<dyn StateStore>>,
}

impl DirectoryHandle {
    /// Starts the directory in a node, as `directory/<namespace>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: DirectoryArgs) -> Result<Self, actor_kit::node::Error> {
        let published = Arc::new(Published::new(Fleet::default()));
        let spec = Spec::new(format!("directory/{}", args.namespace), MAILBOX_MAX);
        let address = node.supervise::<State>(spec, (args, Arc::clone(&published))).await?;
        Ok(Self { address, published })
    }

    /// Returns the present view; no mailbox hop.
    #[must_use]
    pub fn fleet(&self) -> Arc<Fleet> {
        self.published.load_full()
    }

    /// Watches the version of the view.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.published.changed()
    }

    /// Waits until the view satisfies a condition.
    pub async fn wait_for(&self, condition: impl Fn(&Fleet) -> bool) -> Arc<Fleet> {
        self.published.wait_for(condition).await
    }

    /// Reports that a worker's engine refused a connection: it is down at once.
    pub fn refused(&self, worker: &WorkerId) {
        self.report(worker, Signal::Refused);
    }

    /// Reports that a worker's engine did not answer, short of refusing: it counts as a failed probe.
    pub fn failed(&self, worker: &WorkerId) {
        self.report(worker, Signal::ProbeFailed);
    }

    /// Reports that a worker's engine answered a request; free unless the worker is suspect.
    pub fn answered(&self, worker: &WorkerId) {
        if self.published.load().worker(worker).is_some_and(|worker| worker.standing.suspect) {
            self.report(worker, Signal::Answered);
        }
    }

    /// Reports beats, at best some times per second; late or lost reports cost nothing but time.
    pub fn heard(&self, pulses: Vec<Pulse>) {
        self.offer(Msg::Heard(pulses));
    }

    fn report(&self, worker: &WorkerId, signal: Signal) {
        self.offer(Msg::Noted(worker.clone(), signal));
    }

    /// A report that does not fit is dropped: probes and later requests find the same.
    fn offer(&self, message: Msg) {
        if let Err(undelivered) = self.address.offer(message) {
            tracing::debug!(why = %undelivered.why, "directory report dropped");
        }
    }
}

const MAILBOX_MAX: usize = 1024;
const CHILDREN_MAX: usize = 64;
const TICK: Duration = Duration::from_millis(200);
const PROBE_DEADLINE: Duration = Duration::from_secs(1);
const KEEP_PERIOD: Duration = Duration::from_secs(2);
const KEEP_DEADLINE: Duration = Duration::from_secs(5);
const WATCH_RETRY: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum Msg {
    Recalled(Option<Bytes>),
    Kept(bool),
    Watch,
    Watching(Result<Box<dyn Watch>, registry::Error>),
    Watched(Box<dyn Watch>, Event),
    Unwatched,
    Noted(WorkerId, Signal),
    Heard(Vec<Pulse>),
    Tick,
}

struct State {
    args: DirectoryArgs,
    published: Arc<Published<Fleet>>,
    table: Table,
    /// The view that is kept; none before the first is.
    kept: Option<Bytes>,
    keeping: bool,
    keep_at: Duration,
    /// Whether the present outage was reported.
    said_unwatched: bool,
    children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (DirectoryArgs, Arc<Published<Fleet>>);

    fn begin(me: Me<Msg>, (args, published): Self::Args) -> Result<Self, Fault> {
        let table = Table::resume(args.bounds, &published.load());
        let mut children = Children::new(me, CHILDREN_MAX);
        children.tick(TICK, || Msg::Tick)?;
        children.after(Duration::ZERO, Msg::Watch)?;
        let keep_at = args.clock.now() + KEEP_PERIOD;
        let mut state = Self {
            args,
            published,
            table,
            kept: None,
            keeping: false,
            keep_at,
            said_unwatched: false,
            children,
        };
        state.recall()?;
        Ok(state)
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let now = self.args.clock.now();
        match message {
            Msg::Recalled(view) => self.recalled(view, now),
            Msg::Kept(kept) => self.keep_ended(kept),
            Msg::Watch => self.watch()?,
            Msg::Watching(Ok(watch)) => self.follow(watch)?,
            Msg::Watching(Err(error)) => self.watch_later(&error.to_string())?,
            Msg::Unwatched => self.watch_later("watch ended")?,
            Msg::Watched(watch, event) => {
                self.learn(event, now);
                self.follow(watch)?;
            }
            Msg::Noted(worker, signal) => self.table.note(&worker, signal, now),
            Msg::Heard(pulses) => self.table.heard(&pulses),
            Msg::Tick => self.tick(now),
        }
        self.publish(now);
        Ok(())
    }
}

impl State {
    fn watch(&mut self) -> Result<(), actor_kit::Full> {
        let registry = Arc::clone(&self.args.registry);
        let prefix = wire::registry_key::workers(&self.args.namespace);
        let work = async move { registry.watch(&prefix).await };
        let done =
            |outcome: Result<_, Failed>| Msg::Watching(outcome.unwrap_or(Err(registry::Error::Unreachable)));
        self.children.run(Duration::from_secs(10), work, done).map(drop)
    }

    fn watch_later(&mut self, why: &str) -> Result<(), actor_kit::Full> {
        if std::mem::replace(&mut self.said_unwatched, true) {
            tracing::debug!(why, "workers are still not watched");
        } else {
            tracing::warn!(why, "workers are not watched, trying again");
        }
        self.children.after(WATCH_RETRY, Msg::Watch).map(drop)
    }

    /// Waits for the watch's next event beside the handler.
    fn follow(&mut self, mut watch: Box<dyn Watch>) -> Result<(), actor_kit::Full> {
        self.said_unwatched = false;
        let work = async move { watch.next().await.map(|event| (watch, event)) };
        let ended = |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((watch, event))) => Msg::Watched(watch, event),
            Ok(None) | Err(_) => Msg::Unwatched,
        };
        self.children.pump(work, ended).map(drop)
    }

    fn learn(&mut self, event: Event, now: Duration) {
        match event {
            Event::Reset(entries) => {
                let listed: Vec<WorkerId> = entries.iter().filter_map(|entry| self.put(entry, now)).collect();
                self.table.lost_but(&listed, now);
            }
            Event::Put(entry) => {
                self.put(&entry, now);
            }
            Event::Deleted { key } => {
                if let Some((_, worker)) = wire::registry_key::worker_of(&key) {
                    self.table.lost(&worker, now);
                }
            }
        }
    }

    fn put(&mut self, entry: &Entry, now: Duration) -> Option<WorkerId> {
        let card = match wire::card::decode(&entry.value) {
            Ok(card) => card,
            Err(error) => {
                tracing::warn!(key = entry.key, %error, "card cannot be read");
                return wire::registry_key::worker_of(&entry.key).map(|(_, worker)| worker);
            }
        };
        let worker = card.worker.clone();
        match Endpoint::parse(&card.endpoint).map(|endpoint| self.table.put(card, endpoint, now)) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(%worker, "worker is one too many"),
            Err(error) => tracing::warn!(%worker, %error, "card has no usable endpoint"),
        }
        Some(worker)
    }

    fn recall(&mut self) -> Result<(), actor_kit::Full> {
        let Some(store) = self.args.last_view.clone() else { return Ok(()) };
        let name = last_view::name(&self.args.namespace);
        let work = async move { store.load(&name).await };
        let done = |outcome: Result<Result<Option<Bytes>, state_store::Error>, Failed>| {
            Msg::Recalled(outcome.ok().and_then(Result::ok).flatten())
        };
        self.children.run(KEEP_DEADLINE, work, done).map(drop)
    }

    fn recalled(&mut self, view: Option<Bytes>, now: Duration) {
        for card in view.iter().flat_map(|view| last_view::cards(view)) {
            if let Ok(endpoint) = Endpoint::parse(&card.endpoint) {
                self.table.recall(card, endpoint, now);
            }
        }
        self.kept = view;
    }

    fn tick(&mut self, now: Duration) {
        self.probe(now);
        if now >= self.keep_at && !self.keeping {
            self.keep_at = now + KEEP_PERIOD;
            self.keep();
        }
    }

    /// Keeps the present view if it differs from the one that is kept.
    fn keep(&mut self) {
        let Some(store) = self.args.last_view.clone() else { return };
        let view = last_view::text(self.table.cards());
        if self.kept.as_ref() == Some(&view) {
            return;
        }
        let (name, value) = (last_view::name(&self.args.namespace), view.clone());
        let work = async move { store.save(&name, value).await };
        let done = |outcome: Result<Result<(), state_store::Error>, Failed>| {
            Msg::Kept(matches!(outcome, Ok(Ok(()))))
        };
        if self.children.run(KEEP_DEADLINE, work, done).is_ok() {
            (self.keeping, self.kept) = (true, Some(view));
        }
    }

    fn keep_ended(&mut self, kept: bool) {
        self.keeping = false;
        if !kept {
            tracing::warn!("last view of the workers could not be kept");
            self.kept = None;
        }
    }

    fn probe(&mut self, now: Duration) {
        for (worker, endpoint) in self.table.due(now) {
            let engine = Arc::clone(&self.args.engine);
            let work = async move { engine.health(&endpoint, PROBE_DEADLINE).await };
            let done = move |outcome: Result<Result<(), ports::engine::Error>, Failed>| match outcome {
                Ok(Ok(())) => Msg::Noted(worker, Signal::Answered),
                Ok(Err(error)) if error.refused() => Msg::Noted(worker, Signal::Refused),
                Ok(Err(_)) | Err(_) => Msg::Noted(worker, Signal::ProbeFailed),
            };
            if self.children.run(PROBE_DEADLINE * 2, work, done).is_err() {
                return;
            }
        }
    }

    fn publish(&mut self, now: Duration) {
        let before = self.published.load();
        let fleet = self.table.view(before.version() + 1, now);
        if !before.differs(&fleet) {
            return;
        }
        log_changes(&before, &fleet);
        self.published.replace(fleet);
    }
}

fn log_changes(before: &Fleet, after: &Fleet) {
    for worker in after.workers() {
        let was = before.worker(&worker.card.worker).map(|worker| worker.state());
        if was != Some(worker.state()) {
            let (id, state) = (&worker.card.worker, worker.state());
            tracing::info!(worker = %id, state, was = was.unwrap_or("unknown"), "worker changed");
        }
    }
    for worker in before.workers().filter(|worker| after.worker(&worker.card.worker).is_none()) {
        tracing::info!(worker = %worker.card.worker, "worker is gone");
    }
}
