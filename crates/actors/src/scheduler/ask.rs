//! A question on its way through the mailbox, and perhaps through the queue.

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Reply;

use super::SchedulerArgs;
use super::desk::{Moment, Placed};
use super::error::Error;
use super::overlap::Overlap;
use super::request::ScheduleRequest;
use crate::load_board::Peers;

/// A request with what the index said of it.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) request: Arc<ScheduleRequest>,
    pub(super) overlap: Overlap,
    pub(super) until: Duration,
}

/// Where the answer goes.
pub(super) type Answer = Reply<Result<Box<Placed>, Error>>;

/// A request that waits for a busy holder.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ask: Box<Ask>,
    pub(super) answer: Answer,
}

impl Ask {
    pub(super) fn moment<'a>(&'a self, peers: &'a Peers, now: Duration) -> Moment<'a> {
        Moment { request: &self.request, overlap: &self.overlap, peers, now }
    }

    /// Looks the request up anew if the fleet has changed since it was last.
    pub(super) fn refresh(&mut self, args: &SchedulerArgs) {
        let fleet = args.directory.fleet();
        if fleet.version() != self.overlap.fleet_version() {
            self.overlap = Overlap::read(&*args.index, fleet, &args.model, &self.request);
        }
    }
}
