//! The indexes of all models that a process follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use block_index::Matches;
use identity::{Holder, Incarnation, ModelName, WorkerId};
use placement::RoutingRequest;

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
        let Some(first) = seats.first() else { return Vec::new() };
        let Some(index) = self.index(&first.worker.card.model) else {
            return vec![Sight::default(); seats.len()];
        };
        let view = index.view();
        let found: Vec<(u32, Matches)> = routing
            .chains
            .iter()
            .map(|chain| {
                let mut matches = Matches::new();
                view.reader().matches(&chain.keys, &mut matches);
                (chain.block_size, matches)
            })
            .collect();
        let sight = |seat: &Seat| {
            let known = view.holder(&seat.holder)?;
            let block_size = seat.worker.card.block_size;
            let matches = found.iter().find(|(size, _)| *size == block_size).map(|(_, matches)| matches);
            Some(Sight {
                matched_blocks: matches.zip(known.id).map_or(0, |(matches, id)| matches.depth_of(id)),
                engine_active: known.running.saturating_add(known.waiting),
                kv_usage: f64::from(known.kv_usage),
            })
        };
        seats.iter().map(|seat| sight(seat).unwrap_or_default()).collect()
    }

    fn incarnation(&self, holder: &Holder) -> Option<Incarnation> {
        let by_model = self.by_model.load();
        by_model.values().find_map(|index| index.view().holder(holder)?.incarnation)
    }

    fn pulses(&self) -> Vec<Pulse> {
        let mut newest: HashMap<WorkerId, (Duration, bool)> = HashMap::new();
        for index in self.by_model.load().values() {
            let view = index.view();
            for (holder, known) in view.holders() {
                let Some(beat_at) = known.beat_at else { continue };
                let pulse = newest.entry(holder.worker.clone()).or_insert((beat_at, known.engine_healthy));
                if beat_at > pulse.0 {
                    *pulse = (beat_at, known.engine_healthy);
                }
            }
        }
        let pulse = |(worker, (beat_at, engine_healthy))| Pulse { worker, beat_at, engine_healthy };
        newest.into_iter().map(pulse).collect()
    }
}
