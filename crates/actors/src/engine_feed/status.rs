//! What is known of an engine beside its keys, and what is told of both.

use std::time::Duration;

use engine_events::Counts;
use identity::{Holder, Incarnation, ModelName, Rank, SCHEME};
use membership::Beat;
use ports::engine::{EngineStatus, RankStatus};
use ports::event_feed::Error;

use super::session::{Session, Tally};

/// The state of a feed, as of its last message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedStatus {
    /// The engine life that is followed; none until the engine or a checkpoint told.
    pub incarnation: Option<Incarnation>,
    /// Whether everything the engine can tell of its past is applied.
    pub caught_up: bool,
    /// Whether the engine answers.
    pub engine: Engine,
    /// Sequence of the last delta.
    pub seq: u64,
    /// Fold of the digest of the keys.
    pub digest: u64,
    /// Sequence of the engine's last batch that is applied; none before the first.
    pub engine_seq: Option<u64>,
    /// Number of keys.
    pub blocks: u64,
    /// Share of the engine's blocks whose keys are known, 0 to 1.
    pub coverage: f64,
    /// Whether the engine has caches beside the credited one.
    pub hybrid: bool,
    /// What happened on the feed.
    pub tally: Tally,
    /// What events could not be credited, in this life.
    pub counts: Counts,
}

/// What the engine said when it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Engine {
    /// Whether it answers its health check.
    pub healthy: bool,
    /// Requests that it runs.
    pub running: u32,
    /// Requests that wait in it.
    pub waiting: u32,
    /// Share of its KV cache in use, 0 to 1.
    pub kv_usage: f64,
}

/// What an actor sees of its engine.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    engine: Engine,
    /// When the present life began; what the engine said before is of an earlier one.
    pub(super) life_since: Duration,
    feed_failing: bool,
}

impl Outlook {
    pub(super) fn saw(&mut self, healthy: bool, status: Option<&EngineStatus>, rank: Rank) {
        self.engine.healthy = healthy;
        if let Some(RankStatus { running, waiting, kv_usage, .. }) =
            status.and_then(|status| status.rank(rank))
        {
            (self.engine.running, self.engine.waiting, self.engine.kv_usage) =
                (*running, *waiting, *kv_usage);
        }
        if !healthy {
            (self.engine.running, self.engine.waiting) = (0, 0);
        }
    }

    /// Notes a failure of the feed; logs the first of several.
    pub(super) fn feed_failed(&mut self, holder: &Holder, error: &Error) {
        if !std::mem::replace(&mut self.feed_failing, true) {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::info!(worker = %holder.worker, rank = %holder.rank, %error, source, "event feed is down");
        }
    }

    /// Notes that the feed works.
    pub(super) fn feed_works(&mut self, holder: &Holder) {
        if std::mem::replace(&mut self.feed_failing, false) {
            tracing::info!(worker = %holder.worker, rank = %holder.rank, "event feed is up");
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "shares between 0 and 1 as f32")]
    pub(super) fn beat(&self, model: &ModelName, holder: &Holder, session: &Session) -> Beat {
        Beat {
            scheme: SCHEME.to_owned(),
            model: model.clone(),
            worker: holder.worker.clone(),
            rank: holder.rank,
            incarnation: session.incarnation(),
            seq: session.seq(),
            blocks: session.translator().blocks(),
            digest: session.digest().fold(),
            running: self.engine.running,
            waiting: self.engine.waiting,
            kv_usage: self.engine.kv_usage as f32,
            engine_healthy: self.engine.healthy,
            coverage: session.translator().coverage() as f32,
        }
    }

    pub(super) fn status(&self, session: Option<&Session>) -> FeedStatus {
        let Some(session) = session else {
            return FeedStatus { engine: self.engine, ..FeedStatus::default() };
        };
        FeedStatus {
            incarnation: Some(session.incarnation()),
            caught_up: session.is_caught_up(),
            engine: self.engine,
            seq: session.seq(),
            digest: session.digest().fold(),
            engine_seq: session.stamp().2,
            blocks: session.translator().blocks(),
            coverage: session.translator().coverage(),
            hybrid: session.translator().is_hybrid(),
            tally: session.tally(),
            counts: session.translator().counts(),
        }
    }
}
