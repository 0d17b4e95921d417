//! An engine's feed in memory, for simulations and tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Error, EventFeed, Frame, Received, Replay};

/// How many batches wait for a reader before the oldest are lost.
const QUEUE_MAX: usize = 100_000;

#[derive(Debug, Default)]
struct State {
    next_seq: u64,
    buffer: VecDeque<Frame>,
    live: VecDeque<Received>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Notify,
    buffer_max: usize,
    replays: bool,
}

/// The engine's end of a feed.
#[derive(Clone, Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
}

/// The agent's end of a feed.
#[derive(Debug)]
pub struct Feed {
    shared: Arc<Shared>,
}

/// Makes a feed whose engine buffers `buffer_max` batches for replay; 0 stands for an engine without replay.
#[must_use]
pub fn feed(buffer_max: usize) -> (Publisher, Feed) {
    let live = VecDeque::from([Received::Connected]);
    let state = Mutex::new(State { live, ..State::default() });
    let shared = Arc::new(Shared { state, arrived: Notify::new(), buffer_max, replays: buffer_max > 0 });
    (Publisher { shared: Arc::clone(&shared) }, Feed { shared })
}

impl Publisher {
    /// Publishes a batch and returns its number.
    pub fn publish(&self, payload: Bytes) -> u64 {
        self.push(payload, true)
    }

    /// Publishes a batch that gets lost on its way; only a replay shows it.
    pub fn lose(&self, payload: Bytes) -> u64 {
        self.push(payload, false)
    }

    /// Becomes another engine process: numbers begin at 0, and nothing is buffered.
    pub fn restart(&self) {
        self.restart_unnoticed();
        self.shared.state.lock().live.push_back(Received::Connected);
        self.shared.arrived.notify_one();
    }

    /// Becomes another engine process, without the link telling, as over a proxy.
    pub fn restart_unnoticed(&self) {
        let mut state = self.shared.state.lock();
        state.next_seq = 0;
        state.buffer.clear();
    }

    /// Opens another reading end that has seen nothing, as a restarted agent does; the earlier one gets nothing more.
    #[must_use]
    pub fn reconnect(&self) -> Feed {
        self.shared.state.lock().live = VecDeque::from([Received::Connected]);
        Feed { shared: Arc::clone(&self.shared) }
    }

    fn push(&self, payload: Bytes, delivered: bool) -> u64 {
        let mut state = self.shared.state.lock();
        let seq = state.next_seq;
        state.next_seq += 1;
        let frame = Frame { seq, payload };
        state.buffer.push_back(frame.clone());
        if state.buffer.len() > self.shared.buffer_max {
            state.buffer.pop_front();
        }
        if delivered {
            state.live.push_back(Received::Frame(frame));
            if state.live.len() > QUEUE_MAX {
                state.live.pop_front();
            }
        }
        drop(state);
        self.shared.arrived.notify_one();
        seq
    }
}

#[async_trait]
impl EventFeed for Feed {
    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            let arrived = self.shared.arrived.notified();
            if let Some(received) = self.shared.state.lock().live.pop_front() {
                return Ok(received);
            }
            arrived.await;
        }
    }

    async fn replay(&mut self, from: u64, _deadline: Duration) -> Result<Replay, Error> {
        if !self.shared.replays {
            return Err(Error::NoReplay);
        }
        let state = self.shared.state.lock();
        let frames = state.buffer.iter().filter(|frame| frame.seq >= from).cloned().collect();
        Ok(Replay { frames, complete: true })
    }
}
