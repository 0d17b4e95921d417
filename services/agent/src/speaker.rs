//! The agent's one task: finds out about the engine, takes its card, follows its feeds, keeps the card true.
//!
//! ```text
//! discovering ─► (card is another's: standby) ─► starting ─► ready ─► draining ─► gone
//!                                   ▲               ▲ │ lease lost: registers again, and keeps following
//!                                   └───────────────┴─┘ card is another's, who is heard: stops following
//! ```

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{EngineFeedArgs, EngineFeedHandle, FeedStatus};
use identity::{Holder, Incarnation, Rank, WorkerId};
use membership::Card;
use membership::card::State;
use ports::StateStore;
use ports::engine::Endpoint;
use ports::registry::{Entry, Error, Lease};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent_id::AgentId;
use crate::card::{self, Model};
use crate::command_desk::Wish;
use crate::config::Config;
use crate::discovery::{Discovered, discover};
use crate::succession::successor;
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

/// What is spoken of, and by which feeds.
struct Speech {
    id: AgentId,
    discovered: Discovered,
    /// The card without what changes.
    card: Card,
    /// Of the first ranks, all of them while all goes well; none while another agent speaks.
    feeds: Vec<Followed>,
    /// The last life that another agent is known to have spoken of; zero for none.
    after: Incarnation,
}

/// Whose a card is.
enum Whose {
    /// This agent's, or by now nobody's.
    Own,
    /// Another's, which speaks of this life.
    Anothers(Incarnation),
    /// The registry cannot be reached.
    Unknown,
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
        let id = AgentId::recall(&*self.store, &self.worker).await;
        let Some(discovered) = self.discovered().await else { return };
        let url = self.endpoint.as_str();
        let card = card::card(self.worker.clone(), url, &self.config, (&discovered, &self.model));
        let card = Card { agent: id.as_str().to_owned(), media_dir: self.media_dir.clone(), ..card };
        let model = card.model.clone();
        tracing::info!(worker = %self.worker, %model, endpoint = url, block_size = card.block_size, "engine found");
        let key = wire::registry_key::worker(&self.config.namespace, &card.model, &card.worker);
        let mut speech = Speech { id, discovered, card, feeds: Vec::new(), after: Incarnation::default() };
        let mut said = false;
        while !self.stop.is_cancelled() {
            let mut told = self.present(&speech);
            let error = match self.register(&key, &told).await {
                Ok(lease) => {
                    said = false;
                    self.follow(&mut speech).await;
                    if self.hold(&*lease, &mut told, &speech).await == Ended::Stopped {
                        self.leave(Some((lease, told)), &speech.feeds).await;
                        return;
                    }
                    tracing::info!(worker = %self.worker, "lease is lost, registering again");
                    continue;
                }
                Err(error) => error,
            };
            if !std::mem::replace(&mut said, true) {
                tracing::info!(worker = %self.worker, %error, "cannot register, trying again");
            }
            let whose = self.whose(&error, &key, &speech.id).await;
            self.go_on_without_card(whose, &mut speech).await;
            self.pause(PAUSE).await;
        }
        self.leave(None, &speech.feeds).await;
    }

    /// Finds out whose the card is that was refused. It may be this agent's, of before this process: leases take time to end.
    async fn whose(&self, refused: &Error, key: &str, id: &AgentId) -> Whose {
        if !matches!(refused, Error::Taken { .. }) {
            return Whose::Unknown;
        }
        let Ok(entries) = self.ports.registry.list(key).await else { return Whose::Unknown };
        let entry = entries.iter().find(|entry| entry.key == key);
        match entry.and_then(|entry| wire::card::decode(&entry.value).ok()) {
            Some(card) if !id.holds(&card) => Whose::Anothers(card.incarnation),
            _ => Whose::Own,
        }
    }

    /// Speaks, or leaves that to another agent: to whoever has the card, and to whoever is heard while the registry cannot
    /// tell. A speaker leaves it only to one that is heard: an engine without its agent is worse than one with two.
    async fn go_on_without_card(&self, whose: Whose, speech: &mut Speech) {
        let silent = match whose {
            Whose::Own => false,
            Whose::Anothers(life) => {
                speech.after = speech.after.max(life);
                speech.feeds.is_empty() || self.is_succeeded(speech).await
            }
            Whose::Unknown => speech.feeds.is_empty() && self.is_succeeded(speech).await,
        };
        if silent {
            self.fall_silent(speech).await;
            self.enter(Phase::Standby);
        } else {
            self.follow(speech).await;
            self.enter(self.phase_of(&speech.feeds));
        }
    }

    /// Has another agent go on as a later life than this one speaks of, if it speaks; answers whether another does, for every
    /// rank.
    async fn is_succeeded(&self, speech: &mut Speech) -> bool {
        for source in &speech.discovered.ranks {
            let holder = Holder { worker: self.worker.clone(), rank: source.rank };
            let subject = wire::subject::sync(&self.config.namespace, &speech.card.model, &holder);
            let followed = speech.feeds.iter().find(|followed| followed.rank == source.rank);
            let own = || followed.and_then(|it| it.feed.status().incarnation).unwrap_or_default();
            let Some(life) = successor(&*self.ports.bus, subject, own).await else { return false };
            speech.after = speech.after.max(life);
        }
        true
    }

    /// Stops to follow the engine. The last checkpoint stays: with it the agent goes on, as a later life, should the other
    /// one end.
    async fn fall_silent(&self, speech: &mut Speech) {
        if speech.feeds.is_empty() {
            return;
        }
        tracing::info!(worker = %self.worker, "another agent has the card and is heard, standing by");
        self.followed.send_replace(Vec::new());
        for Followed { feed, .. } in speech.feeds.drain(..) {
            if let Err(error) = feed.retire(&self.node).await {
                tracing::warn!(worker = %self.worker, %error, "feed does not end yet");
            }
        }
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
    async fn follow(&self, speech: &mut Speech) {
        let Speech { id, discovered, card, feeds, after } = speech;
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
                seed: id.seed() ^ u64::from(source.rank.0),
                after: *after,
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
                    feeds.push(Followed { rank: source.rank, feed });
                    self.followed.send_replace(feeds.clone());
                }
                Err(error) => {
                    tracing::error!(worker = %self.worker, %error, "feed cannot be followed");
                    return;
                }
            }
        }
    }

    /// Keeps the card true until the lease is lost or the agent is stopped.
    async fn hold(&self, lease: &dyn Lease, told: &mut Card, speech: &Speech) -> Ended {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Ended::Stopped,
                () = lease.lost() => return Ended::Lost,
                () = self.ports.clock.sleep(LOOK) => {}
            }
            self.enter(self.phase_of(&speech.feeds));
            let present = self.present(speech);
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
    async fn leave(&self, held: Option<(Box<dyn Lease>, Card)>, feeds: &[Followed]) {
        self.enter(Phase::Draining);
        let lease = match held {
            Some((lease, card)) => {
                self.drain(&*lease, card, feeds).await;
                Some(lease)
            }
            None => None,
        };
        for Followed { feed, .. } in feeds {
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
    async fn drain(&self, lease: &dyn Lease, card: Card, feeds: &[Followed]) {
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
        while self.ports.clock.now() < until && feeds.iter().any(|it| busy(&it.feed.status())) {
            self.ports.clock.sleep(LOOK).await;
        }
    }

    fn present(&self, speech: &Speech) -> Card {
        let statuses: Vec<_> = speech.feeds.iter().map(|it| it.feed.status()).collect();
        let all_known = statuses.iter().all(|status| status.incarnation.is_some());
        let oldest = statuses.iter().filter_map(|status| status.incarnation).min();
        let state = match *self.phase.borrow() {
            Phase::Ready => State::Ready,
            Phase::Draining => State::Draining,
            Phase::Discovering | Phase::Standby | Phase::Starting => State::Starting,
        };
        card::current(&speech.card, oldest.filter(|_| all_known), state)
    }

    fn phase_of(&self, feeds: &[Followed]) -> Phase {
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
fn phase_of(feeds: &[Followed], was: Phase) -> Phase {
    let ready = |followed: &Followed| {
        let status = followed.feed.status();
        status.caught_up && (status.engine.healthy || was == Phase::Ready)
    };
    if !feeds.is_empty() && feeds.iter().all(ready) { Phase::Ready } else { Phase::Starting }
}
