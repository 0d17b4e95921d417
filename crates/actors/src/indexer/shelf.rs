//! The indexes of all models that a process follows.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::{Holder, Incarnation, ModelName};
use placement::RoutingRequest;
use tokio::sync::watch;

use super::IndexerHandle;
use crate::directory::{Pulse, Seat};
use crate::scheduler::{IndexSource, Sight};

/// Indexes by model; cheap to clone, every clone shows the same.
#[derive(Clone, Debug, Default)]
pub struct IndexShelf {
    by_model: Arc<ArcSwap<HashMap<ModelName, IndexerHandle>>>,
}

impl IndexShelf {
    /// Puts a model's index on the shelf, in place of the one before.
    pub fn put(&self, index: &IndexerHandle) {
        self.by_model.rcu(|by_model| {
            let mut by_model = HashMap::clone(by_model);
            by_model.insert(index.model().clone(), index.clone());
            by_model
        });
    }

    /// Finds a model's index.
    #[must_use]
    pub fn index(&self, model: &ModelName) -> Option<IndexerHandle> {
        self.by_model.load().get(model).cloned()
    }

    /// Lists the indexes, in no order.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexerHandle> {
        self.by_model.load().values().cloned().collect()
    }

    /// Tells whether every index was ready once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.by_model.load().values().all(IndexerHandle::is_ready)
    }
}

impl IndexSource for IndexShelf {
    fn sights(&self, seats: &[Seat], routing: &RoutingRequest) -> Vec<Sight> {
        let index = seats.first().and_then(|seat| self.index(&seat.worker.card.model));
        index.map_or_else(|| vec![Sight::default(); seats.len()], |index| index.sights(seats, routing))
    }

    fn incarnation(&self, holder: &Holder) -> Option<Incarnation> {
        self.by_model.load().values().find_map(|index| index.incarnation(holder))
    }

    fn pulses(&self) -> Vec<Pulse> {
        self.by_model.load().values().flat_map(IndexerHandle::pulses).collect()
    }

    fn changed(&self, model: &ModelName) -> Option<watch::Receiver<u64>> {
        self.index(model).map(|index| index.changed())
    }
}
