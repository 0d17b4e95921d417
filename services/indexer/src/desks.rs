//! The replica of each model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{DirectoryHandle, IndexSource, IndexerArgs, IndexerHandle, ReplicatorArgs, ReplicatorHandle};
use identity::ModelName;
use ports::{Bus, Clock};
use tokio::sync::watch;

/// How often the directory is told of beats.
const PULSE: Duration = Duration::from_secs(1);

/// A model's index and what keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) index: IndexerHandle,
    pub(crate) replicator: ReplicatorHandle,
}

/// The desks of all models that appeared; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Desks {
    pub(crate) directory: DirectoryHandle,
    open: Arc<watch::Sender<Arc<BTreeMap<ModelName, Desk>>>>,
}

/// What desks are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) namespace: String,
    pub(crate) node: Node,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: block_index::Limits,
    pub(crate) seed: u64,
}

impl Desks {
    pub(crate) fn new(directory: DirectoryHandle) -> Self {
        Self { directory, open: Arc::new(watch::Sender::new(Arc::default())) }
    }

    /// Lists the desks, by model.
    pub(crate) fn all(&self) -> Arc<BTreeMap<ModelName, Desk>> {
        Arc::clone(&self.open.borrow())
    }

    /// Tells whether every model's replica was ready once.
    pub(crate) fn are_ready(&self) -> bool {
        let (fleet, desks) = (self.directory.fleet(), self.all());
        fleet.version() > 0
            && fleet.models().all(|model| desks.get(model).is_some_and(|desk| desk.index.is_ready()))
    }

    /// Returns the least agreement among the models' replicas.
    pub(crate) fn agreement(&self) -> f64 {
        self.all().values().map(|desk| desk.index.view().agreement()).fold(1.0, f64::min)
    }

    /// Opens a desk for each model that appears, and tells the directory of beats; never ends by itself.
    pub(crate) async fn follow(self, parts: Parts) {
        let mut changed = self.directory.changed();
        loop {
            let fleet = self.directory.fleet();
            for model in fleet.models() {
                if self.all().contains_key(model) {
                    continue;
                }
                match self.desk(model, &parts).await {
                    Ok(desk) => self.open.send_modify(|desks| {
                        Arc::make_mut(desks).insert(model.clone(), desk);
                    }),
                    Err(cause) => tracing::error!(%model, %cause, "model cannot be followed"),
                }
            }
            tokio::select! {
                news = changed.changed() => if news.is_err() { return },
                () = parts.clock.sleep(PULSE) => {
                    let pulses = self.all().values().flat_map(|desk| desk.index.pulses()).collect();
                    self.directory.heard(pulses);
                }
            }
        }
    }

    async fn desk(&self, model: &ModelName, parts: &Parts) -> Result<Desk, actor_kit::node::Error> {
        let args =
            IndexerArgs { model: model.clone(), limits: parts.limits, clock: Arc::clone(&parts.clock) };
        let index = IndexerHandle::start(&parts.node, args).await?;
        let args = ReplicatorArgs {
            namespace: parts.namespace.clone(),
            model: model.clone(),
            bus: Arc::clone(&parts.bus),
            clock: Arc::clone(&parts.clock),
            indexer: index.clone(),
            cards: Arc::new(self.directory.clone()),
            listeners: Vec::new(),
            policy: membership::replica::Policy::default(),
            blocks_max: u64::from(parts.limits.blocks_max),
            seed: parts.seed,
        };
        let replicator = ReplicatorHandle::start(&parts.node, args).await?;
        Ok(Desk { index, replicator })
    }
}
