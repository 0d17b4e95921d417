//! Frontends: the actors that a frontend wires, without its HTTP surface.

use std::sync::Arc;

use actor_kit::Node;
use actors::{
    DeskLimits, DirectoryArgs, DirectoryHandle, IndexSource, IndexerArgs, IndexerHandle, Ledger,
    LoadBoardArgs, LoadBoardHandle, ReplicatorArgs, ReplicatorHandle, SchedulerArgs, SchedulerHandle,
};
use identity::Incarnation;
use membership::presence::Bounds;
use membership::replica::Policy;
use placement::{BoardLimits, QueueLimits};
use ports::{InMemoryRegistry, InMemoryStateStore, StateStore};

use crate::agents::Town;
use crate::weather::Sky;
use crate::{NAMESPACE, model};

/// A place where a frontend runs, or has run.
#[derive(Debug)]
pub(crate) struct FrontendNode {
    pub(crate) name: String,
    pub(crate) sky: Arc<Sky>,
    pub(crate) registry: InMemoryRegistry,
    /// Counts its processes; requests belong to one of them.
    pub(crate) life: u32,
    disk: Arc<InMemoryStateStore>,
    pub(crate) running: Option<Frontend>,
}

/// A running frontend.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) node: Node,
    pub(crate) directory: DirectoryHandle,
    pub(crate) index: IndexerHandle,
    pub(crate) scheduler: SchedulerHandle,
    _replicator: ReplicatorHandle,
    _board: LoadBoardHandle,
}

impl FrontendNode {
    pub(crate) fn new(name: &str, sky: Arc<Sky>, town: &Town) -> Self {
        let registry = town.registry.attach();
        Self { name: name.to_owned(), sky, registry, life: 0, disk: Arc::default(), running: None }
    }

    pub(crate) async fn start(&mut self, town: &Town, run: u64, seed: u64) {
        if self.running.is_some() {
            return;
        }
        self.life += 1;
        let node = Node::start(&format!("{}-{}-{run}", self.name, self.life));
        let (bus, clock) = (self.sky.connect(&town.bus), &town.clock);
        let directory = DirectoryArgs {
            namespace: NAMESPACE.to_owned(),
            registry: Arc::new(self.registry.clone()),
            engine: Arc::new(town.http.clone()),
            clock: Arc::clone(clock),
            bounds: Bounds::default(),
            last_view: Some(Arc::clone(&self.disk) as Arc<dyn StateStore>),
        };
        let directory = DirectoryHandle::start(&node, directory).await.unwrap();
        let ledger = Ledger::default();
        let board = LoadBoardArgs {
            namespace: NAMESPACE.to_owned(),
            frontend: self.name.clone(),
            incarnation: Incarnation { started_ms: clock.wall_ms(), nonce: seed },
            bus: Arc::clone(&bus),
            clock: Arc::clone(clock),
            ledger: ledger.clone(),
            limits: BoardLimits::default(),
        };
        let board = LoadBoardHandle::start(&node, board).await.unwrap();
        let limits = block_index::Limits { holders_max: 64, blocks_max: 100_000 };
        let index = IndexerArgs { model: model(), limits, clock: Arc::clone(clock) };
        let index = IndexerHandle::start(&node, index).await.unwrap();
        let replicator = ReplicatorArgs {
            namespace: NAMESPACE.to_owned(),
            model: model(),
            bus,
            clock: Arc::clone(clock),
            indexer: index.clone(),
            cards: Arc::new(directory.clone()),
            listeners: Vec::new(),
            policy: Policy::default(),
            blocks_max: limits.blocks_max.into(),
            seed,
        };
        let replicator = ReplicatorHandle::start(&node, replicator).await.unwrap();
        let scheduler = SchedulerArgs {
            model: model(),
            directory: directory.clone(),
            index: Arc::new(index.clone()) as Arc<dyn IndexSource>,
            ledger,
            board: Some(board.clone()),
            clock: Arc::clone(clock),
            limits: DeskLimits::default(),
            queue: QueueLimits::default(),
            seed,
        };
        let scheduler = SchedulerHandle::start(&node, scheduler).await.unwrap();
        self.running =
            Some(Frontend { node, directory, index, scheduler, _replicator: replicator, _board: board });
    }

    /// Ends it as a crash does.
    pub(crate) fn crash(&mut self) {
        drop(self.running.take());
    }

    pub(crate) fn lose_disk(&mut self) {
        self.disk = Arc::default();
    }
}
