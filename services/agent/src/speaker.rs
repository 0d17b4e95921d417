//! The agent's one task: finds out about the engine, takes its card, follows its feeds, keeps the card true.
//!
//! ```text
//! discovering ─► (card is another's: standby) ─► starting ─► ready ─► draining ─► gone
//!                                                   ▲ lease lost: registers again, and keeps following
//! ```

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{EngineFeedArgs, EngineFeedHandle, FeedStatus};
use engine_events::Record;
use identity::{Holder, Incarnation, ModelName, Rank, WorkerId};
use membership::Card;
use membership::card::State;
use ports::StateStore;
use ports::engine::Endpoint;
use ports::registry::{Entry, Error, Lease};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::card::{self, Model};
use crate::command_desk::Wish;
use crate::config::Config;
use crate::discovery::{Discovered, discover};
use crate::wiring::{Ports, RankFeeds};
use crate::zmq_feeds::ZmqFeeds;

/// How long the card outlives its agent.
const LEASE: Duration = Duration::from_secs(10);
/// Pause between attempts to find the engine, or to register.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the card is compared with the feeds.
const LOOK: Duration = Duration::from_millis(100);
/// How long a checkpoint or the registry may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The engine does not tell yet what it is.
    Discovering,
    /// Another agent speaks for the worker.
    Standby,
    /// The engine's cache is being learned, or the engine does not answer.
    Starting,
    /// The worker takes requests.
    Ready,
    /// The worker takes no new requests.
    Draining,
}

/// A rank and the feed that follows it.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) rank: Rank,
    pub(crate) feed: EngineFeedHandle,
}

/// What the task works with.
#[derive(Debug)]
pub(crate) struct Speaker {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    pub(crate) store: Arc<dyn StateStore>,
    /// In place of the engine's ZMQ endpoints.
    pub(crate) feeds: Option<Arc<dyn RankFeeds>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) worker: WorkerId,
    pub(crate) model: Model,
    /// Where the engine reads media as files.
    pub(crate) media_dir: Option<membership::card::MediaDir>,
    pub(crate) node: Node,
    pub(crate) phase: watch::Sender<Phase>,
    /// Cancelled to stop; how long requests may take to finish is in `drain`.
    pub(crate) stop: CancellationToken,
    pub(crate) drain: watch::Receiver<Duration>,
    /// What operators want of the worker.
    pub(crate) wish: Wish,
    /// Tells others of the feeds.
    pub(crate) followed: watch::Sender<Vec<Followed>>,
}

/// Why a card is no longer held.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Lost,
    Stopped,
}

impl Speaker {
    /// Runs until stopped.
    pub(crate) async fn run(self) {
        self.wish.recall().await;
        let Some(discovered) = self.discovered().await else { return };
        let url = self.endpoint.as_str();
        let card = card::card(self.worker.clone(), url, &self.config, (&discovered, &self.model));
        let card = Card { media_dir: self.media_dir.clone(), ..card };
        let model = card.model.clone();
        tracing::info!(worker = %self.worker, %model, endpoint = url, block_size = card.block_size, "engine found");
        let key = wire::registry_key::worker(&self.config.namespace, &card.model, &card.worker);
        let mut feeds: Vec<EngineFeedHandle> = Vec::new();
        let mut said = false;
        while !self.stop.is_cancelled() {
            let mut told = self.present(&card, &feeds);
            let taken = match self.register(&key, &told).await {
                Ok(lease) => {
                    said = false;
                    self.follow(&discovered, &card, &mut feeds).await;
                    if self.hold(&*lease, &card, &mut told, &feeds).await == Ended::Stopped {
                        self.leave(Some((lease, told)), &feeds).await;
                        return;
                    }
                    tracing::info!(worker = %self.worker, "lease is lost, registering again");
                    continue;
                }
                Err(error) => {
                    let taken = matches!(error, Error::Taken { .. });
                    if !std::mem::replace(&mut said, true) {
                        tracing::info!(worker = %self.worker, %error, "cannot register, trying again");
                    }
                    taken
                }
            };
            // Whoever held the card before this process may have been this very agent: its lease takes time to end.
            // Without a registry nobody can tell, and an engine without its agent is worse than one with two.
            if !feeds.is_empty() || !taken || self.was_ours(&key, &discovered).await {
                self.follow(&discovered, &card, &mut feeds).await;
                self.enter(self.phase_of(&feeds));
            } else {
                self.enter(Phase::Standby);
            }
            self.pause(PAUSE).await;
        }
        self.leave(None, &feeds).await;
    }

    /// Asks the engine until it tells; none when stopped.
    async fn discovered(&self) -> Option<Discovered> {
        let mut said = String::new();
        while !self.stop.is_cancelled() {
            match discover(&*self.ports.engine, &self.endpoint, &self.config).await {
                Ok(discovered) => return Some(discovered),
                Err(error) => {
                    let why = format!("{error:#}");
                    if why != said {
                        tracing::info!(worker = %self.worker, endpoint = %self.endpoint, why, "waiting for the engine");
                        said = why;
                    }
                }
            }
            self.pause(PAUSE).await;
        }
        None
    }

    async fn register(&self, key: &str, card: &Card) -> Result<Box<dyn Lease>, Error> {
        let value = wire::card::encode(card).map_err(|_| Error::Unreachable)?;
        self.ports.registry.register(Entry { key: key.to_owned(), value }, LEASE).await
    }

    /// Starts to follow the ranks that are not followed yet.
    async fn follow(&self, discovered: &Discovered, card: &Card, feeds: &mut Vec<EngineFeedHandle>) {
        for source in discovered.ranks.iter().skip(feeds.len()) {
            let holder = Holder { worker: self.worker.clone(), rank: source.rank };
            let args = EngineFeedArgs {
                namespace: self.config.namespace.clone(),
                model: card.model.clone(),
                holder,
                endpoint: self.endpoint.clone(),
                translation: engine_events::Config {
                    block_size: card.block_size,
                    secret: Arc::from(self.config.secret.as_str()),
                    placeholders: self.model.placeholders.clone(),
                    blocks_max: self.config.blocks_max,
                },
                seed: self.ports.clock.wall_ms() ^ u64::from(source.rank.0) << 40,
                feeds: match &self.feeds {
                    Some(feeds) => feeds.of(source.rank),
                    None => Arc::new(ZmqFeeds::new(source)),
                },
                bus: Arc::clone(&self.ports.bus),
                engine: Arc::clone(&self.ports.engine),
                store: Arc::clone(&self.store),
                clock: Arc::clone(&self.ports.clock),
            };
            match EngineFeedHandle::start(&self.node, args).await {
                Ok(feed) => {
                    let rank = source.rank;
                    self.followed.send_modify(|all| all.push(Followed { rank, feed: feed.clone() }));
                    feeds.push(feed);
                }
                Err(error) => {
                    tracing::error!(worker = %self.worker, %error, "feed cannot be followed");
                    return;
                }
            }
        }
    }

    /// Keeps the card true until the lease is lost or the agent is stopped.
    async fn hold(
        &self,
        lease: &dyn Lease,
        base: &Card,
        told: &mut Card,
        feeds: &[EngineFeedHandle],
    ) -> Ended {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ended::Stopped,
                () = lease.lost() => return Ended::Lost,
                () = self.ports.clock.sleep(LOOK) => {}
            }
            self.enter(self.phase_of(feeds));
            let present = self.present(base, feeds);
            if present == *told {
                continue;
            }
            let Ok(value) = wire::card::encode(&present) else { continue };
            match lease.update(value).await {
                Ok(()) => *told = present,
                Err(Error::Expired { .. }) => return Ended::Lost,
                Err(error) => tracing::debug!(worker = %self.worker, %error, "card is not updated yet"),
            }
        }
    }

    /// Drains, saves, and gives the card back.
    async fn leave(&self, held: Option<(Box<dyn Lease>, Card)>, feeds: &[EngineFeedHandle]) {
        self.enter(Phase::Draining);
        let lease = match held {
            Some((lease, card)) => {
                self.drain(&*lease, card, feeds).await;
                Some(lease)
            }
            None => None,
        };
        for feed in feeds {
            if feed.save(LAST_WORDS).await != Ok(true) {
                tracing::debug!(worker = %self.worker, "no last checkpoint");
            }
        }
        if let Some(lease) = lease
            && !matches!(tokio::time::timeout(LAST_WORDS, lease.revoke()).await, Ok(Ok(())))
        {
            tracing::info!(worker = %self.worker, "card was not taken back, its lease will end");
        }
    }

    /// Says that the worker takes nothing new, and waits for what it has, as long as it may.
    async fn drain(&self, lease: &dyn Lease, card: Card, feeds: &[EngineFeedHandle]) {
        let patience = *self.drain.borrow();
        if patience.is_zero() {
            return;
        }
        if let Ok(value) = wire::card::encode(&Card { state: State::Draining, ..card })
            && let Err(error) = lease.update(value).await
        {
            tracing::info!(worker = %self.worker, %error, "draining is not announced");
        }
        let until = self.ports.clock.now() + patience;
        // What was dispatched before everybody knew has to show in the engine's metrics first.
        self.ports.clock.sleep(Duration::from_secs(2).min(patience)).await;
        let busy =
            |status: &FeedStatus| status.engine.healthy && status.engine.running + status.engine.waiting > 0;
        while self.ports.clock.now() < until && feeds.iter().any(|feed| busy(&feed.status())) {
            self.ports.clock.sleep(LOOK).await;
        }
    }

    /// Tells whether the card under a key is of this agent's previous life: its checkpoint knows the incarnation.
    async fn was_ours(&self, key: &str, discovered: &Discovered) -> bool {
        let Ok(entries) = self.ports.registry.list(key).await else { return false };
        let card = entries
            .iter()
            .find(|entry| entry.key == key)
            .and_then(|entry| wire::card::decode(&entry.value).ok());
        let Some(card) = card else { return false };
        for source in &discovered.ranks {
            let holder = Holder { worker: self.worker.clone(), rank: source.rank };
            let name = EngineFeedHandle::name(&ModelName::new(&discovered.model), &holder);
            let saved = self.store.load(&name).await.ok().flatten();
            let record = saved.and_then(|saved| Record::from_bytes(&saved).ok());
            if record.is_some_and(|record| {
                record.incarnation >= card.incarnation && card.incarnation != Incarnation::default()
            }) {
                return true;
            }
        }
        false
    }

    fn present(&self, base: &Card, feeds: &[EngineFeedHandle]) -> Card {
        let statuses: Vec<_> = feeds.iter().map(EngineFeedHandle::status).collect();
        let all_known = statuses.iter().all(|status| status.incarnation.is_some());
        let oldest = statuses.iter().filter_map(|status| status.incarnation).min();
        let state = match *self.phase.borrow() {
            Phase::Ready => State::Ready,
            Phase::Draining => State::Draining,
            Phase::Discovering | Phase::Standby | Phase::Starting => State::Starting,
        };
        card::current(base, oldest.filter(|_| all_known), state)
    }

    fn phase_of(&self, feeds: &[EngineFeedHandle]) -> Phase {
        if self.wish.drains() { Phase::Draining } else { phase_of(feeds, *self.phase.borrow()) }
    }

    fn enter(&self, phase: Phase) {
        let changed = self.phase.send_if_modified(|present| std::mem::replace(present, phase) != phase);
        if changed {
            tracing::info!(worker = %self.worker, phase = ?phase, "agent has changed");
        }
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.ports.clock.sleep(pause) => {}
        }
    }
}

/// A worker becomes ready when its engine answers and is known; a ready one stays so while its present life is known:
/// whether the engine can be reached is for those to judge that reach for it, not for one late answer to the agent.
fn phase_of(feeds: &[EngineFeedHandle], was: Phase) -> Phase {
    let ready = |feed: &EngineFeedHandle| {
        let status = feed.status();
        status.caught_up && (status.engine.healthy || was == Phase::Ready)
    };
    if !feeds.is_empty() && feeds.iter().all(ready) { Phase::Ready } else { Phase::Starting }
}
