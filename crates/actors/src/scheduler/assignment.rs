//! The scheduler's answer, and the guard that gives back what it reserved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actor_kit::Address;
use identity::{Holder, MediaKey, Rank, WorkerId};
use placement::{Decision, DispatchId, Predicted, Sample};
use ports::Clock;
use ports::engine::Endpoint;

use super::Msg;
use super::request::ScheduleRequest;
use crate::directory::{Seat, Worker};

/// Where a request goes.
#[derive(Debug)]
pub struct Assignment {
    /// The worker, as it was when the request was placed.
    pub worker: Arc<Worker>,
    /// The holder at that worker.
    pub holder: Holder,
    /// How it was chosen.
    pub decision: Decision,
    /// The request's place; keep it as long as the request is in flight.
    pub reservation: Reservation,
}

impl Assignment {
    /// Returns the worker's name.
    #[must_use]
    pub const fn worker_id(&self) -> &WorkerId {
        &self.holder.worker
    }

    /// Returns the data-parallel rank.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.holder.rank
    }

    /// Returns where the worker is reached.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.worker.endpoint
    }

    /// Returns what is predicted of the request, for comparison with what the engine says.
    #[must_use]
    pub fn predicted(&self) -> Predicted {
        self.reservation.predicted
    }
}

/// A request's reservation: a guard that ends exactly once, when it is dropped, on whatever path.
#[derive(Debug)]
pub struct Reservation {
    pub(super) place: Option<placement::Reservation>,
    pub(super) trace: Trace,
    pub(super) predicted: Predicted,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) address: Address<Msg>,
    pub(super) computed: AtomicBool,
}

/// What the scheduler remembers of a dispatch, carried by its guard.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) seat: Seat,
    pub(super) request: Arc<ScheduleRequest>,
    pub(super) dispatch: Option<DispatchId>,
    /// Media that the holder had not had before.
    pub(super) new_media: Vec<MediaKey>,
    pub(super) dispatched_at: Duration,
    /// Work before the first token, that of requests ahead included, in tokens.
    pub(super) prefill_tokens: f64,
    pub(super) encode_tokens: f64,
    pub(super) origin: Origin,
}

/// Whose dispatch it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// This frontend's.
    Own,
    /// Another's, told by a notice.
    Foreign,
}

/// What became of a dispatch.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The first token came.
    FirstToken(Trace, Sample),
    /// It ended, with its prompt computed (and no first token seen) or without.
    Ended(Trace, bool),
    /// It ended after its first token: only its place is free.
    Freed,
}

impl Reservation {
    /// Notes that the first token has come: prefill is over, its time teaches the holder's rates, its blocks are due.
    pub fn first_token(&self) {
        let first = self.place.as_ref().is_some_and(placement::Reservation::end_prefill);
        if self.computed.swap(true, Ordering::AcqRel) {
            return;
        }
        let elapsed = self.clock.now().saturating_sub(self.trace.dispatched_at);
        let sample = Sample {
            prefill_tokens: self.trace.prefill_tokens,
            encode_tokens: self.trace.encode_tokens,
            first_token_ms: if first { elapsed.as_secs_f64() * 1000.0 } else { f64::NAN },
        };
        self.tell(Outcome::FirstToken(self.trace.clone(), sample));
    }

    /// Notes that the request has been answered in full, and ends it.
    pub fn finish(self) {
        if !self.computed.swap(true, Ordering::AcqRel) {
            self.tell(Outcome::Ended(self.trace.clone(), true));
        }
    }

    /// Bookkeeping that does not fit the mailbox is lost and runs out by itself; the ledger does not depend on it.
    fn tell(&self, outcome: Outcome) {
        drop(self.address.offer(Msg::Came(Box::new(outcome))));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        drop(self.place.take());
        let outcome = if self.computed.load(Ordering::Acquire) {
            Outcome::Freed
        } else {
            Outcome::Ended(self.trace.clone(), false)
        };
        self.tell(outcome);
    }
}
