//! Agents: the real ones, on simulated feeds, with a disk that outlives them.

use std::sync::Arc;

use actors::{FeedStatus, Feeds};
use agent::{Agent, Config, Ports, RankFeeds, Stead};
use identity::Rank;
use ports::engine::memory::MemoryEngine;
use ports::{Clock, InMemoryBus, InMemoryRegistry, InMemoryStateStore, StateStore};

use crate::NAMESPACE;
use crate::dice::Dice;
use crate::engine::SimEngine;
use crate::feed::Line;
use crate::weather::Sky;

/// What every process of a world is connected to.
#[derive(Clone, Debug)]
pub(crate) struct Town {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bus: InMemoryBus,
    pub(crate) registry: InMemoryRegistry,
    pub(crate) http: MemoryEngine,
}

impl RankFeeds for Line {
    fn of(&self, _rank: Rank) -> Arc<dyn Feeds> {
        Arc::new(self.clone())
    }
}

/// A place where an agent runs, or has run.
#[derive(Debug)]
pub(crate) struct AgentNode {
    pub(crate) name: String,
    pub(crate) engine: SimEngine,
    pub(crate) sky: Arc<Sky>,
    pub(crate) registry: InMemoryRegistry,
    disk: Arc<InMemoryStateStore>,
    /// Draws the ids of agents without one.
    dice: Dice,
    agent: Option<Agent>,
}

impl AgentNode {
    pub(crate) fn new(name: &str, engine: &SimEngine, (sky, dice): (Arc<Sky>, Dice), town: &Town) -> Self {
        Self {
            name: name.to_owned(),
            engine: engine.clone(),
            sky,
            registry: town.registry.attach(),
            disk: Arc::default(),
            dice,
            agent: None,
        }
    }

    /// Starts the agent, unless it runs.
    pub(crate) async fn start(&mut self, town: &Town) {
        if self.agent.is_some() {
            return;
        }
        if !self.remembers().await {
            let id = format!("{:016x}", self.dice.roll(u64::MAX));
            self.disk.save(&self.id_name(), id.into()).await.unwrap();
        }
        let config = Config {
            engine: self.engine.url(),
            id: Some(self.engine.worker.clone()),
            namespace: NAMESPACE.to_owned(),
            ..Config::default()
        };
        let ports = Ports {
            bus: self.sky.connect(&town.bus),
            registry: Arc::new(self.registry.clone()),
            engine: Arc::new(town.http.clone()),
            clock: Arc::clone(&town.clock),
        };
        let stead = Stead {
            feeds: Some(Arc::new(self.engine.line.clone())),
            store: Some(Arc::clone(&self.disk) as _),
        };
        self.agent = Some(Agent::start_with(config, ports, stead).unwrap());
    }

    /// Ends it as a crash does.
    pub(crate) fn crash(&mut self) {
        drop(self.agent.take());
    }

    pub(crate) fn lose_disk(&mut self) {
        self.disk = Arc::default();
    }

    /// Tells whether it would know the card of its last life for its own.
    pub(crate) async fn remembers(&self) -> bool {
        matches!(self.disk.load(&self.id_name()).await, Ok(Some(_)))
    }

    fn id_name(&self) -> String {
        format!("agent/{}", self.engine.worker)
    }

    pub(crate) fn kill_actor(&self) -> bool {
        let node = self.agent.as_ref().map(Agent::node);
        node.is_some_and(|node| node.actors().first().is_some_and(|actor| node.kill(actor)))
    }

    /// What it knows of its engine; none while it does not follow it.
    pub(crate) fn status(&self) -> Option<Arc<FeedStatus>> {
        self.agent.as_ref()?.statuses().first().cloned()
    }
}
