//! An agent put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actor_kit::Node;
use actors::{FeedStatus, Feeds};
use anyhow::Context;
use identity::{Rank, WorkerId};
use ports::engine::Endpoint;
use ports::{Bus, Clock, Engine, InMemoryStateStore, Registry, StateStore};
use prompt::ModelFiles;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::card::Model;
use crate::command_desk::{CommandDesk, Wish};
use crate::config::Config;
use crate::file_desk::FileDesk;
use crate::media_shelf::MediaShelf;
use crate::operator_surface::AgentView;
use crate::speaker::{Followed, Phase, Speaker};
use crate::state_dir::StateDir;

/// What an agent is connected to.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The event plane.
    pub bus: Arc<dyn Bus>,
    /// Discovery.
    pub registry: Arc<dyn Registry>,
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Opens the feeds of an engine's ranks.
pub trait RankFeeds: Send + Sync + std::fmt::Debug {
    /// Returns what opens one rank's feed.
    fn of(&self, rank: Rank) -> Arc<dyn Feeds>;
}

/// What an agent works with in place of what its configuration describes, as simulations do.
#[derive(Clone, Debug, Default)]
pub struct Stead {
    /// In place of the engine's ZMQ endpoints.
    pub feeds: Option<Arc<dyn RankFeeds>>,
    /// In place of the state directory.
    pub store: Option<Arc<dyn StateStore>>,
}

/// Agents started in this process: their nodes need names of their own, also while one follows another.
static AGENTS: AtomicU64 = AtomicU64::new(0);

/// A running agent. Dropping it ends it at once, as a crash does; `stop` takes its leave.
#[derive(Debug)]
pub struct Agent {
    worker: WorkerId,
    phase: watch::Receiver<Phase>,
    followed: watch::Receiver<Vec<Followed>>,
    stop: CancellationToken,
    drain: watch::Sender<Duration>,
    task: JoinSet<()>,
    shelf: Option<MediaShelf>,
    _desks: JoinSet<()>,
    node: Node,
}

impl Agent {
    /// Starts to speak for an engine, which need not answer yet.
    ///
    /// # Errors
    /// The engine's URL is none, or a directory cannot be used.
    pub fn start(config: Config, ports: Ports) -> anyhow::Result<Self> {
        Self::start_with(config, ports, Stead::default())
    }

    /// As `start`, with some parts given.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_with(config: Config, ports: Ports, stead: Stead) -> anyhow::Result<Self> {
        let endpoint =
            Endpoint::parse(&config.engine).with_context(|| format!("--engine {:?}", config.engine))?;
        let worker = WorkerId::new(config.id.as_deref().unwrap_or(endpoint.authority().as_str()));
        let files = config.model_dir.as_deref().map(ModelFiles::read).transpose()?;
        let model = files.as_ref().map(Model::of).unwrap_or_default();
        let file_desk = FileDesk::new(files.as_ref(), &config.namespace, &worker, &ports);
        let store: Arc<dyn StateStore> = match (stead.store, &config.state_dir) {
            (Some(store), _) => store,
            (None, Some(dir)) => {
                let opened = StateDir::open(dir);
                Arc::new(opened.with_context(|| format!("state directory {} cannot be used", dir.display()))?)
            }
            (None, None) => Arc::new(InMemoryStateStore::default()),
        };
        let shelf = MediaShelf::open(&config, &ports.clock)?;
        let wish = Wish::new(worker.clone(), Arc::clone(&store));
        let command_desk = CommandDesk {
            subject: wire::subject::command(&config.namespace, &worker),
            bus: Arc::clone(&ports.bus),
            clock: Arc::clone(&ports.clock),
            wish: wish.clone(),
        };
        let nth = AGENTS.fetch_add(1, Ordering::Relaxed);
        let node = Node::start(&format!("agent-{}-{worker}-{nth}", config.namespace));
        let (phase, phases) = watch::channel(Phase::Discovering);
        let (followed, all_followed) = watch::channel(Vec::new());
        let (drain, drains) = watch::channel(Duration::ZERO);
        let stop = CancellationToken::new();
        let speaker = Speaker {
            config,
            ports,
            store,
            feeds: stead.feeds,
            endpoint,
            worker: worker.clone(),
            model,
            media_dir: shelf.as_ref().map(MediaShelf::card),
            node: node.clone(),
            phase,
            stop: stop.clone(),
            drain: drains,
            wish,
            followed,
        };
        let mut task = JoinSet::new();
        task.spawn(speaker.run());
        let mut desks = JoinSet::new();
        desks.spawn(file_desk.serve());
        desks.spawn(command_desk.serve());
        Ok(Self {
            worker,
            phase: phases,
            followed: all_followed,
            stop,
            drain,
            task,
            _desks: desks,
            shelf,
            node,
        })
    }

    /// Returns the worker's name.
    #[must_use]
    pub const fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Watches what the agent is doing.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Returns what operators may see of the agent.
    #[must_use]
    pub fn view(&self) -> AgentView {
        AgentView {
            worker: self.worker.clone(),
            phase: self.phase.clone(),
            followed: self.followed.clone(),
            media_dir: self.shelf.as_ref().map(|shelf| Arc::clone(shelf.dir())),
        }
    }

    /// Returns the state of each rank's feed that is followed, by rank.
    #[must_use]
    pub fn statuses(&self) -> Vec<Arc<FeedStatus>> {
        self.followed.borrow().iter().map(|followed| followed.feed.status()).collect()
    }

    /// Waits until the worker takes requests; answers whether it does before the agent ends.
    pub async fn ready(&self) -> bool {
        self.phase().wait_for(|phase| *phase == Phase::Ready).await.is_ok()
    }

    /// Returns the agent's actors.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Takes leave: drains for up to `drain`, saves a checkpoint, gives the card back, and ends.
    pub async fn stop(mut self, drain: Duration) {
        self.drain.send_replace(drain);
        self.stop.cancel();
        let patience = drain + Duration::from_secs(5);
        if tokio::time::timeout(patience, self.task.join_next()).await.is_err() {
            tracing::warn!(worker = %self.worker, "agent did not end by itself");
        }
        if let Some(shelf) = self.shelf.take() {
            shelf.close();
        }
        self.node.stop(Duration::from_millis(500)).await;
    }
}
