//! A node with the routing actors, workers that register cards, and an index that says what it is told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{
    DeskLimits, DirectoryArgs, DirectoryHandle, Fleet, IndexSource, Ledger, LoadBoardArgs, LoadBoardHandle,
    Pulse, SchedulerArgs, SchedulerHandle, Seat, Sight,
};
use identity::{BlockKey, Holder, Incarnation, ModelName, Rank, WorkerId};
use membership::Card;
use membership::card::State;
use membership::presence::Bounds;
use parking_lot::Mutex;
use placement::{BoardLimits, KeyChain, QueueLimits, RoutingRequest};
use ports::engine::Endpoint;
use ports::engine::memory::{MemoryEngine, Reply};
use ports::registry::{Entry, Lease};
use ports::{Clock, InMemoryBus, InMemoryRegistry, InMemoryStateStore, Registry, StateStore, TokioClock};
use tokio::sync::watch;

pub(crate) const NAMESPACE: &str = "test";

/// What the index is told to say.
#[derive(Debug, Default)]
pub(crate) struct Told {
    matched: Mutex<HashMap<Holder, u32>>,
    lives: Mutex<HashMap<Holder, Incarnation>>,
    version: watch::Sender<u64>,
}

impl Told {
    pub(crate) fn matched(&self, worker: &str, blocks: u32) {
        self.matched.lock().insert(holder(worker), blocks);
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn life(&self, worker: &str, started_ms: u64) {
        self.lives.lock().insert(holder(worker), Incarnation { started_ms, nonce: 0 });
    }
}

impl IndexSource for Told {
    fn sights(&self, seats: &[Seat], _routing: &RoutingRequest) -> Vec<Sight> {
        let matched = self.matched.lock();
        let blocks = seats.iter().map(|seat| matched.get(&seat.holder).copied().unwrap_or(0));
        blocks.map(|matched_blocks| Sight { matched_blocks, ..Sight::default() }).collect()
    }

    fn incarnation(&self, holder: &Holder) -> Option<Incarnation> {
        self.lives.lock().get(holder).copied()
    }

    fn pulses(&self) -> Vec<Pulse> {
        Vec::new()
    }

    fn changed(&self, _model: &ModelName) -> Option<watch::Receiver<u64>> {
        Some(self.version.subscribe())
    }
}

pub(crate) struct Town {
    pub(crate) node: Node,
    pub(crate) store: Arc<InMemoryStateStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: InMemoryRegistry,
    pub(crate) bus: InMemoryBus,
    pub(crate) engine: MemoryEngine,
    pub(crate) index: Arc<Told>,
    pub(crate) directory: DirectoryHandle,
}

impl Town {
    pub(crate) async fn new(name: &str) -> Self {
        Self::with_store(name, Arc::default()).await
    }

    /// Makes a town that remembers what `store` holds.
    pub(crate) async fn with_store(name: &str, store: Arc<InMemoryStateStore>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::from_wall(1_000_000));
        let registry = InMemoryRegistry::new(Arc::clone(&clock));
        let parts = (registry, InMemoryBus::new(), MemoryEngine::default(), Arc::new(Told::default()));
        Self::build(name, store, clock, parts).await
    }

    /// Makes another frontend of the same cluster.
    pub(crate) async fn twin(&self, name: &str) -> Self {
        let parts = (self.registry.attach(), self.bus.attach(), self.engine.clone(), Arc::clone(&self.index));
        Self::build(name, Arc::default(), Arc::clone(&self.clock), parts).await
    }

    async fn build(
        name: &str,
        store: Arc<InMemoryStateStore>,
        clock: Arc<dyn Clock>,
        (registry, bus, engine, index): (InMemoryRegistry, InMemoryBus, MemoryEngine, Arc<Told>),
    ) -> Self {
        let node = Node::start(name);
        let args = DirectoryArgs {
            namespace: NAMESPACE.to_owned(),
            registry: Arc::new(registry.attach()),
            engine: Arc::new(engine.clone()),
            clock: Arc::clone(&clock),
            bounds: Bounds::default(),
            last_view: Some(Arc::clone(&store) as Arc<dyn StateStore>),
        };
        let directory = DirectoryHandle::start(&node, args).await.unwrap();
        Self { node, store, clock, registry, bus, engine, index, directory }
    }

    /// Registers a worker whose engine answers.
    pub(crate) async fn open(&self, card: &Card) -> Box<dyn Lease> {
        let endpoint = Endpoint::parse(&card.endpoint).unwrap();
        self.engine.serve(&endpoint, |_| Reply::json(http::StatusCode::OK, "{}"));
        let lease = self.registry.register(entry(card), Duration::from_secs(10)).await.unwrap();
        self.wait_for(|fleet| fleet.worker(&card.worker).is_some()).await;
        lease
    }

    pub(crate) async fn wait_for(&self, condition: impl Fn(&Fleet) -> bool) -> Arc<Fleet> {
        let waiting = self.directory.wait_for(&condition);
        let fleet = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("within 60 s");
        assert!(condition(&fleet));
        fleet
    }

    pub(crate) async fn scheduler(&self, queue: QueueLimits) -> (SchedulerHandle, Ledger) {
        self.start(Ledger::default(), None, queue).await
    }

    /// Starts a scheduler that shares its load and its dispatches with other frontends.
    pub(crate) async fn frontend(&self, name: &str) -> (SchedulerHandle, Ledger) {
        let (board, ledger) = self.board(name, self.bus.attach()).await;
        self.start(ledger, Some(board), QueueLimits::default()).await
    }

    async fn start(
        &self,
        ledger: Ledger,
        board: Option<LoadBoardHandle>,
        queue: QueueLimits,
    ) -> (SchedulerHandle, Ledger) {
        let args = SchedulerArgs {
            model: model(),
            directory: self.directory.clone(),
            index: Arc::clone(&self.index) as Arc<dyn IndexSource>,
            ledger: ledger.clone(),
            board,
            clock: Arc::clone(&self.clock),
            limits: DeskLimits::default(),
            queue,
            seed: 7,
        };
        (SchedulerHandle::start(&self.node, args).await.unwrap(), ledger)
    }

    pub(crate) async fn board(&self, frontend: &str, bus: InMemoryBus) -> (LoadBoardHandle, Ledger) {
        let ledger = Ledger::default();
        let args = LoadBoardArgs {
            namespace: NAMESPACE.to_owned(),
            frontend: frontend.to_owned(),
            incarnation: Incarnation { started_ms: 1, nonce: 1 },
            bus: Arc::new(bus),
            clock: Arc::clone(&self.clock),
            ledger: ledger.clone(),
            limits: BoardLimits::default(),
        };
        (LoadBoardHandle::start(&self.node, args).await.unwrap(), ledger)
    }
}

pub(crate) fn model() -> ModelName {
    ModelName::new("tiny")
}

pub(crate) fn holder(worker: &str) -> Holder {
    Holder { worker: WorkerId::new(worker), rank: Rank(0) }
}

pub(crate) fn card(worker: &str) -> Card {
    let endpoint = format!("http://{worker}.test:8100");
    Card { state: State::Ready, ..Card::new(WorkerId::new(worker), model(), &endpoint, 16) }
}

pub(crate) fn entry(card: &Card) -> Entry {
    let key = wire::registry_key::worker(NAMESPACE, &card.model, &card.worker);
    Entry { key, value: wire::card::encode(card).unwrap() }
}

/// A text prompt whose blocks are named after `name`.
pub(crate) fn prompt(name: u64, tokens: u32) -> RoutingRequest {
    let keys = (0..u64::from(tokens / 16)).map(|at| BlockKey::new((name << 32) + at)).collect();
    let chains = vec![KeyChain { block_size: 16, keys }];
    RoutingRequest { chains, prompt_tokens: tokens, ..RoutingRequest::default() }
}

/// Lets everything that is due happen, `ms` milliseconds of paused time on.
pub(crate) async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
