//! Why a request was not placed.

use std::time::Duration;

use identity::{Rank, WorkerId};
use placement::{Unplaced, Why};

/// Why a request was not placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every holder that could serve it is busy: try again later.
    #[error("every worker is busy, retry after {retry_after:?}")]
    Overloaded {
        /// When the backlog is predicted to have drained.
        retry_after: Duration,
    },
    /// No worker takes requests of this model now.
    #[error("no worker is available ({})", why.map_or("none is known", Why::as_str))]
    NoWorker {
        /// What the worker closest to availability lacks; none where none is known.
        why: Option<Why>,
    },
    /// The request names a worker that does not exist.
    #[error("unknown worker {worker}")]
    UnknownWorker {
        /// As named.
        worker: WorkerId,
    },
    /// The request names a rank that the worker does not have.
    #[error("worker {worker} has no rank {}", rank.0)]
    UnknownRank {
        /// The worker.
        worker: WorkerId,
        /// As named.
        rank: Rank,
    },
    /// No worker of this model can ever serve this request as it is.
    #[error("no worker can serve the request ({why})")]
    Unservable {
        /// What stands in the way at the most capable worker.
        why: Why,
    },
    /// The scheduler did not answer.
    #[error("scheduler did not answer")]
    Scheduler(#[from] actor_kit::address::Error),
}

impl Error {
    pub(super) fn of(unplaced: &Unplaced) -> Self {
        match unplaced.mildest() {
            Some(why @ (Why::MediaNotResident | Why::Adapter | Why::MediaCount | Why::Context)) => {
                Self::Unservable { why }
            }
            why => Self::NoWorker { why },
        }
    }
}
