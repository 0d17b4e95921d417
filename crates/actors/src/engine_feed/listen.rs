//! Waiting on a feed beside the actor; the feed goes out with an order and comes back with what arrived.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ports::EventFeed;
use ports::event_feed::{Error, Frame, Received, Replay};
use ports::{Clock, Retry};
use tokio::sync::Notify;

use super::session::Order;

/// Silence after which the engine is asked whether it is still the same.
const IDLE: Duration = Duration::from_secs(5);
/// How long one replay may take.
const REPLAY_DEADLINE: Duration = Duration::from_secs(10);
/// Pause before a failed replay is tried again.
const REPLAY_PAUSE: Duration = Duration::from_millis(500);
/// How many batches are handed over at once.
const FRAMES_MAX: usize = 256;

/// What came of an order.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Published batches, in order.
    pub(super) frames: Vec<Frame>,
    /// What followed them.
    pub(super) end: End,
}

/// What ended a wait.
#[derive(Debug)]
pub(super) enum End {
    /// Nothing more for the moment.
    Pending,
    /// Others had their turn.
    Rested,
    /// The link is new: batches may have been missed.
    Connected,
    /// Nothing came for a while.
    Idle,
    /// The actor wants to ask.
    Nudged,
    /// The feed failed, and may be waited for again.
    Failed(Error),
    /// A replay ended.
    Replayed {
        /// First number asked for.
        from: u64,
        /// What came.
        replay: Result<Replay, Error>,
    },
}

/// Carries out an order.
pub(super) async fn carry_out(
    feed: &mut dyn EventFeed,
    order: Order,
    nudge: Arc<Notify>,
    clock: Arc<dyn Clock>,
) -> Arrival {
    match order {
        Order::Listen | Order::Identify => listen(feed, &nudge, &*clock).await,
        Order::GoOn => {
            tokio::task::yield_now().await;
            Arrival { frames: Vec::new(), end: End::Rested }
        }
        Order::Replay { from } => replayed(feed, from, &nudge).await,
        Order::ReplayLater { from } => {
            clock.sleep(REPLAY_PAUSE).await;
            replayed(feed, from, &nudge).await
        }
    }
}

/// Waits for a replay, unless the actor has something newer to ask: an engine that died owes the answer for good.
async fn replayed(feed: &mut dyn EventFeed, from: u64, nudge: &Notify) -> Arrival {
    let end = tokio::select! {
        biased;
        () = nudge.notified() => End::Nudged,
        replay = feed.replay(from, REPLAY_DEADLINE) => End::Replayed { from, replay },
    };
    Arrival { frames: Vec::new(), end }
}

async fn listen(feed: &mut dyn EventFeed, nudge: &Notify, clock: &dyn Clock) -> Arrival {
    let first = tokio::select! {
        biased;
        () = nudge.notified() => return Arrival { frames: Vec::new(), end: End::Nudged },
        received = feed.next() => received,
        () = clock.sleep(IDLE) => return Arrival { frames: Vec::new(), end: End::Idle },
    };
    let mut frames = Vec::new();
    let mut next = Some(first);
    while let Some(received) = next.take() {
        match received {
            Ok(Received::Frame(frame)) => frames.push(frame),
            Ok(Received::Connected) => return Arrival { frames, end: End::Connected },
            Err(error) => {
                if let (true, Retry::After(pause)) = (frames.is_empty(), error.retry()) {
                    clock.sleep(pause).await;
                }
                return Arrival { frames, end: End::Failed(error) };
            }
        }
        if frames.len() < FRAMES_MAX {
            next = feed.next().now_or_never();
        }
    }
    Arrival { frames, end: End::Pending }
}
