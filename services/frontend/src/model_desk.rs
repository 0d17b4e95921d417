//! The actors of one model.

use std::sync::Arc;

use actor_kit::Node;
use actors::{
    DeskLimits, DirectoryHandle, IndexSource, Ledger, LoadBoardHandle, NoIndex, SchedulerArgs,
    SchedulerHandle,
};
use identity::ModelName;
use placement::QueueLimits;
use ports::Clock;

/// A model's scheduler and index; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ModelDesk {
    pub(crate) model: ModelName,
    pub(crate) scheduler: SchedulerHandle,
}

/// What the desks of all models share.
#[derive(Clone, Debug)]
pub(crate) struct DeskParts {
    pub(crate) node: Node,
    pub(crate) directory: DirectoryHandle,
    pub(crate) ledger: Ledger,
    pub(crate) board: LoadBoardHandle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
}

impl DeskParts {
    /// Starts the actors of a model.
    pub(crate) async fn open(&self, model: &ModelName) -> Result<ModelDesk, actor_kit::node::Error> {
        let index: Arc<dyn IndexSource> = Arc::new(NoIndex);
        let args = SchedulerArgs {
            model: model.clone(),
            directory: self.directory.clone(),
            index,
            ledger: self.ledger.clone(),
            board: Some(self.board.clone()),
            clock: Arc::clone(&self.clock),
            limits: DeskLimits::default(),
            queue: QueueLimits::default(),
            seed: self.seed,
        };
        let scheduler = SchedulerHandle::start(&self.node, args).await?;
        Ok(ModelDesk { model: model.clone(), scheduler })
    }
}
