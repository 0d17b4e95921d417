//! The actors of one model.

use std::sync::Arc;

use actor_kit::Node;
use actors::{
    DeskLimits, DirectoryHandle, IndexShelf, IndexSource, IndexerArgs, IndexerHandle, Ledger,
    LoadBoardHandle, MediaListener, RemoteIndex, ReplicatorArgs, ReplicatorHandle, SchedulerArgs,
    SchedulerHandle,
};
use identity::ModelName;
use placement::QueueLimits;
use ports::{Bus, Clock};

use crate::desk_index::DeskIndex;
use crate::lessons::{Attendance, Lessons};
use crate::models::Models;

/// A model's index and what reads it; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ModelDesk {
    pub(crate) model: ModelName,
    pub(crate) index: DeskIndex,
    pub(crate) scheduler: SchedulerHandle,
}

/// What the desks of all models share.
#[derive(Clone, Debug)]
pub(crate) struct DeskParts {
    pub(crate) namespace: String,
    pub(crate) node: Node,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) directory: DirectoryHandle,
    pub(crate) shelf: IndexShelf,
    /// The indexers that are asked instead of a replica of one's own.
    pub(crate) remote: Option<RemoteIndex>,
    pub(crate) ledger: Ledger,
    pub(crate) board: LoadBoardHandle,
    /// Who hears of the media in engines' prompts.
    pub(crate) listeners: Vec<Arc<dyn MediaListener>>,
    pub(crate) limits: block_index::Limits,
    pub(crate) lessons: Lessons,
    pub(crate) seed: u64,
}

impl DeskParts {
    /// Lists who hears of the media in a model's prompts.
    fn listeners_of(
        &self,
        model: &ModelName,
        models: &Models,
        scheduler: &SchedulerHandle,
    ) -> Vec<Arc<dyn MediaListener>> {
        let attendance = Attendance {
            model: model.clone(),
            models: models.clone(),
            directory: self.directory.clone(),
            lessons: self.lessons.clone(),
        };
        let mut listeners = self.listeners.clone();
        listeners.push(Arc::new(attendance));
        listeners.push(Arc::new(scheduler.clone()));
        listeners
    }

    /// Starts the actors of a model, one of `models`.
    pub(crate) async fn open(
        &self,
        model: &ModelName,
        models: &Models,
    ) -> Result<ModelDesk, actor_kit::node::Error> {
        let source: Arc<dyn IndexSource> = match &self.remote {
            Some(remote) => Arc::new(remote.clone()),
            None => Arc::new(self.shelf.clone()),
        };
        let args = SchedulerArgs {
            model: model.clone(),
            directory: self.directory.clone(),
            index: source,
            ledger: self.ledger.clone(),
            board: Some(self.board.clone()),
            clock: Arc::clone(&self.clock),
            limits: DeskLimits::default(),
            queue: QueueLimits::default(),
            seed: self.seed,
        };
        let scheduler = SchedulerHandle::start(&self.node, args).await?;
        let index = match &self.remote {
            Some(remote) => DeskIndex::Elsewhere { remote: remote.clone(), model: model.clone() },
            None => self.replica(model, models, &scheduler).await?,
        };
        Ok(ModelDesk { model: model.clone(), index, scheduler })
    }

    /// Starts to keep a replica; what deltas tell of media, the scheduler and the lessons hear.
    async fn replica(
        &self,
        model: &ModelName,
        models: &Models,
        scheduler: &SchedulerHandle,
    ) -> Result<DeskIndex, actor_kit::node::Error> {
        let args = IndexerArgs { model: model.clone(), limits: self.limits, clock: Arc::clone(&self.clock) };
        let index = IndexerHandle::start(&self.node, args).await?;
        let args = ReplicatorArgs {
            namespace: self.namespace.clone(),
            model: model.clone(),
            bus: Arc::clone(&self.bus),
            clock: Arc::clone(&self.clock),
            indexer: index.clone(),
            cards: Arc::new(self.directory.clone()),
            listeners: self.listeners_of(model, models, scheduler),
            policy: membership::replica::Policy::default(),
            blocks_max: u64::from(self.limits.blocks_max),
            seed: self.seed,
        };
        let replicator = ReplicatorHandle::start(&self.node, args).await?;
        self.shelf.put(&index);
        Ok(DeskIndex::Here { index, replicator })
    }
}
