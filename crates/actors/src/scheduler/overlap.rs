//! What the index says of a request, seat by seat; read on the caller's task, without a mailbox hop.

use std::fmt;
use std::sync::Arc;

use block_index::Matches;
use identity::{Holder, Incarnation, ModelName};
use membership::replica::Phase;
use placement::RoutingRequest;
use tokio::sync::watch;

use crate::directory::{Fleet, Pulse, Seat};
use crate::indexer::{HolderView, IndexView, IndexerHandle, pulses};
use crate::scheduler::request::ScheduleRequest;

/// What an index says of one holder, for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sight {
    /// Blocks of the request's prompt that the holder has.
    pub matched_blocks: u32,
    /// Blocks that the holder has in all.
    pub blocks: u64,
    /// Requests that its engine runs or lets wait, as of the last beat.
    pub engine_active: u32,
    /// Share of its KV cache in use, 0 to 1, as of the last beat.
    pub kv_usage: f64,
}

impl Sight {
    /// Tells a holder's load, and no overlap.
    pub(crate) fn of_load(known: &HolderView) -> Self {
        Self {
            matched_blocks: 0,
            blocks: known.blocks,
            engine_active: known.running.saturating_add(known.waiting),
            kv_usage: f64::from(known.kv_usage),
        }
    }
}

/// Where overlap is read: the replica in this process, an indexer elsewhere, or none.
pub trait IndexSource: Send + Sync + fmt::Debug {
    /// Looks a request up for each seat, in their order.
    fn sights(&self, seats: &[Seat], routing: &RoutingRequest) -> Vec<Sight>;

    /// Returns the engine life that a holder's blocks belong to, where known.
    fn incarnation(&self, holder: &Holder) -> Option<Incarnation>;

    /// Lists the beats last heard, by worker.
    fn pulses(&self) -> Vec<Pulse>;

    /// Watches for changes of a model's blocks; none while there is nothing to watch.
    fn changed(&self, model: &ModelName) -> Option<watch::Receiver<u64>>;
}

/// An index that knows nothing: routing by load, media and own dispatches.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoIndex;

impl IndexSource for NoIndex {
    fn sights(&self, seats: &[Seat], _routing: &RoutingRequest) -> Vec<Sight> {
        vec![Sight::default(); seats.len()]
    }

    fn incarnation(&self, _holder: &Holder) -> Option<Incarnation> {
        None
    }

    fn pulses(&self) -> Vec<Pulse> {
        Vec::new()
    }

    fn changed(&self, _model: &ModelName) -> Option<watch::Receiver<u64>> {
        None
    }
}

impl IndexSource for IndexerHandle {
    fn sights(&self, seats: &[Seat], routing: &RoutingRequest) -> Vec<Sight> {
        let view = self.view();
        let depths: Vec<(u32, Vec<u32>)> =
            routing.chains.iter().map(|chain| (chain.block_size, depths(&view, &chain.keys))).collect();
        let sight = |seat: &Seat| {
            let Some(holder) = view.holder(&seat.holder) else { return Sight::default() };
            let of_size = depths.iter().find(|(size, _)| *size == seat.worker.card.block_size);
            let depth = of_size.and_then(|(_, depths)| depths.get(holder.id?.index()).copied());
            let credit = !matches!(holder.state, Phase::Unknown | Phase::Gone | Phase::Refused);
            Sight { matched_blocks: depth.filter(|_| credit).unwrap_or(0), ..Sight::of_load(holder) }
        };
        seats.iter().map(sight).collect()
    }

    fn incarnation(&self, holder: &Holder) -> Option<Incarnation> {
        self.view().holder(holder)?.incarnation
    }

    fn pulses(&self) -> Vec<Pulse> {
        pulses(self.view().holders())
    }

    fn changed(&self, _model: &ModelName) -> Option<watch::Receiver<u64>> {
        Some(Self::changed(self))
    }
}

/// How many of the keys each holder has, by its index in the reader's answers.
fn depths(view: &IndexView, keys: &[identity::BlockKey]) -> Vec<u32> {
    let mut found = Matches::default();
    view.reader().matches(keys, &mut found);
    let mut depths = Vec::new();
    for (holder, depth) in found.iter() {
        if depths.len() <= holder.index() {
            depths.resize(holder.index() + 1, 0);
        }
        if let Some(place) = depths.get_mut(holder.index()) {
            *place = depth;
        }
    }
    depths
}

/// The seats of a model in one view of the fleet, and what the index says of each.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    fleet: Arc<Fleet>,
    model: ModelName,
    sights: Vec<Sight>,
}

impl Overlap {
    /// Looks a request up in the index, for the fleet of this moment; what an indexer found of it counts instead.
    pub(super) fn read(
        index: &dyn IndexSource,
        fleet: Arc<Fleet>,
        model: &ModelName,
        request: &ScheduleRequest,
    ) -> Self {
        let seats = fleet.seats(model);
        let mut sights = index.sights(seats, &request.routing);
        sights.resize(seats.len(), Sight::default());
        for (sight, seat) in sights.iter_mut().zip(seats) {
            if let Some(found) = &request.found {
                sight.matched_blocks = found.blocks(&seat.holder, seat.worker.card.incarnation);
            }
            if !seat.worker.has_credit() {
                sight.matched_blocks = 0;
            }
        }
        Self { fleet, model: model.clone(), sights }
    }

    pub(super) fn fleet_version(&self) -> u64 {
        self.fleet.version()
    }

    pub(super) fn seats(&self) -> &[Seat] {
        self.fleet.seats(&self.model)
    }

    pub(super) fn sights(&self) -> &[Sight] {
        &self.sights
    }

    pub(super) fn at(&self, seat: usize) -> Option<(&Seat, &Sight)> {
        self.seats().get(seat).zip(self.sights.get(seat))
    }
}
