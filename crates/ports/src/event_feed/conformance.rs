//! What every event feed must do; run on the in-memory feed and on the real ones.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use super::{Error, EventFeed, Frame, Received, Replay};

/// How long the suite waits for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// An engine with a feed, under the suite's control.
#[async_trait]
pub trait Rig: Send {
    /// Opens a reading end.
    async fn feed(&mut self) -> Box<dyn EventFeed>;

    /// Waits until a batch published from now on would reach the reading end.
    async fn settle(&mut self);

    /// Publishes a batch and returns its number.
    async fn publish(&mut self, payload: Bytes) -> u64;

    /// Publishes a batch that only a replay shows, and returns its number.
    async fn lose(&mut self, payload: Bytes) -> u64;

    /// Becomes another engine process at the same endpoints.
    async fn restart(&mut self);
}

/// Runs the whole suite; `rig` makes a fresh engine for each part.
///
/// # Panics
/// The feed breaks the contract.
pub async fn run<R: Rig>(mut rig: impl AsyncFnMut() -> R) {
    batches_come_in_order(rig().await).await;
    lost_batches_show_and_are_replayed(rig().await).await;
    a_replay_disturbs_nothing(rig().await).await;
    waiting_can_be_cancelled(rig().await).await;
    a_restart_connects_again_and_counts_from_zero(rig().await).await;
}

async fn batches_come_in_order(mut rig: impl Rig) {
    let mut feed = connected(&mut rig).await;
    for number in 0..200_u64 {
        assert_eq!(rig.publish(payload("a", number)).await, number, "numbers begin at 0 and grow by one");
    }
    for number in 0..200 {
        assert_eq!(next(&mut *feed).await, Some(frame("a", number)));
    }
}

async fn lost_batches_show_and_are_replayed(mut rig: impl Rig) {
    let mut feed = connected(&mut rig).await;
    rig.publish(payload("a", 0)).await;
    rig.lose(payload("a", 1)).await;
    rig.publish(payload("a", 2)).await;
    assert_eq!(next(&mut *feed).await, Some(frame("a", 0)));
    assert_eq!(next(&mut *feed).await, Some(frame("a", 2)), "a hole in the numbers");
    for (from, numbers) in [(0, 0..3), (1, 1..3), (2, 2..3), (3, 3..3), (1_000, 0..0)] {
        let replay = feed.replay(from, PATIENCE).await.ok();
        assert_eq!(replay.as_ref().map(numbers_of), Some(numbers.clone().collect()), "from {from}");
        assert!(replay.is_some_and(|replay| replay.complete), "from {from}");
    }
}

async fn a_replay_disturbs_nothing(mut rig: impl Rig) {
    let mut feed = connected(&mut rig).await;
    rig.publish(payload("a", 0)).await;
    rig.publish(payload("a", 1)).await;
    let replay = feed.replay(0, PATIENCE).await.ok();
    assert_eq!(replay.as_ref().map(numbers_of), Some(vec![0, 1]));
    rig.publish(payload("a", 2)).await;
    for number in 0..3 {
        assert_eq!(next(&mut *feed).await, Some(frame("a", number)));
    }
}

async fn waiting_can_be_cancelled(mut rig: impl Rig) {
    let mut feed = connected(&mut rig).await;
    for number in 0..20 {
        let nothing = timeout(Duration::from_millis(2), feed.next()).await;
        assert!(nothing.is_err(), "nothing was published: {nothing:?}");
        rig.publish(payload("a", number)).await;
        assert_eq!(next(&mut *feed).await, Some(frame("a", number)));
    }
}

async fn a_restart_connects_again_and_counts_from_zero(mut rig: impl Rig) {
    let mut feed = connected(&mut rig).await;
    rig.publish(payload("a", 0)).await;
    assert_eq!(next(&mut *feed).await, Some(frame("a", 0)));
    rig.restart().await;
    assert_eq!(next(&mut *feed).await, Some(Received::Connected), "a new link is reported");
    rig.settle().await;
    let replay = feed.replay(0, PATIENCE).await.ok();
    assert_eq!(replay, Some(Replay { frames: Vec::new(), complete: true }), "the new process has no past");
    assert_eq!(rig.publish(payload("b", 0)).await, 0);
    assert_eq!(next(&mut *feed).await, Some(frame("b", 0)));
    let replay = feed.replay(0, PATIENCE).await.ok();
    assert_eq!(
        replay.and_then(|replay| replay.frames.into_iter().next()).map(Received::Frame),
        Some(frame("b", 0))
    );
}

/// Checks a feed of an engine without replay.
///
/// # Panics
/// It does not answer `NoReplay`.
pub async fn refuses_replay(feed: &mut dyn EventFeed) {
    let refused = feed.replay(0, PATIENCE).await;
    assert!(matches!(refused, Err(Error::NoReplay)), "{refused:?}");
}

async fn connected(rig: &mut impl Rig) -> Box<dyn EventFeed> {
    let mut feed = rig.feed().await;
    assert_eq!(next(&mut *feed).await, Some(Received::Connected), "the first thing a feed yields");
    rig.settle().await;
    feed
}

/// Waits for the next thing, over failures that are to be retried.
async fn next(feed: &mut dyn EventFeed) -> Option<Received> {
    let attempts = async {
        loop {
            if let Ok(received) = feed.next().await {
                return received;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, attempts).await.ok()
}

fn payload(engine: &str, number: u64) -> Bytes {
    Bytes::from(format!("{engine}{number}"))
}

fn frame(engine: &str, seq: u64) -> Received {
    Received::Frame(Frame { seq, payload: payload(engine, seq) })
}

fn numbers_of(replay: &Replay) -> Vec<u64> {
    replay.frames.iter().map(|frame| frame.seq).collect()
}
