//! What the index says of a request, seat by seat; read on the caller's task, without a mailbox hop.

use std::fmt;
use std::sync::Arc;

use identity::{Holder, Incarnation, ModelName};
use placement::RoutingRequest;

use crate::directory::{Fleet, Pulse, Seat};

/// What an index says of one holder, for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sight {
    /// Blocks of the request's prompt that the holder has.
    pub matched_blocks: u32,
    /// Requests that its engine runs or lets wait, as of the last beat.
    pub engine_active: u32,
    /// Share of its KV cache in use, 0 to 1, as of the last beat.
    pub kv_usage: f64,
}

/// Where overlap is read: the replica in this process, or none.
pub trait IndexSource: Send + Sync + fmt::Debug {
    /// Looks a request up for each seat, in their order.
    fn sights(&self, seats: &[Seat], routing: &RoutingRequest) -> Vec<Sight>;

    /// Returns the engine life that a holder's blocks belong to, where known.
    fn incarnation(&self, holder: &Holder) -> Option<Incarnation>;

    /// Lists the beats last heard, by worker.
    fn pulses(&self) -> Vec<Pulse>;
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
}

/// The seats of a model in one view of the fleet, and what the index says of each.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    fleet: Arc<Fleet>,
    model: ModelName,
    sights: Vec<Sight>,
}

impl Overlap {
    /// Looks a request up in the index, for the fleet of this moment.
    pub(super) fn read(
        index: &dyn IndexSource,
        fleet: Arc<Fleet>,
        model: &ModelName,
        routing: &RoutingRequest,
    ) -> Self {
        let seats = fleet.seats(model);
        let mut sights = index.sights(seats, routing);
        sights.resize(seats.len(), Sight::default());
        for (sight, seat) in sights.iter_mut().zip(seats) {
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
