//! An engine's event line: every reader has a queue of its own, as with publish and subscribe sockets.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actors::Feeds;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use ports::EventFeed;
use ports::event_feed::{Error, Frame, Received, Replay};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;

/// How long a replay takes.
const REPLAY: Duration = Duration::from_millis(20);

/// The engine's end.
#[derive(Clone, Debug)]
pub(crate) struct Line(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    pace: Pace,
    next_seq: u64,
    buffer: VecDeque<Frame>,
    buffer_max: usize,
    seats: Vec<Weak<Seat>>,
    lose_permille: u64,
    dice: Dice,
}

/// How the engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Answers,
    /// Nothing listens.
    Refuses,
    /// It stands still, and answers once it goes on.
    Hangs,
}

#[derive(Debug, Default)]
struct Seat {
    queue: Mutex<VecDeque<Received>>,
    arrived: Notify,
}

impl Seat {
    fn put(&self, received: Received) {
        self.queue.lock().push_back(received);
        self.arrived.notify_one();
    }
}

impl Line {
    pub(crate) fn new(buffer_max: usize, dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(State {
            pace: Pace::Refuses,
            next_seq: 0,
            buffer: VecDeque::new(),
            buffer_max,
            seats: Vec::new(),
            lose_permille: 0,
            dice,
        })))
    }

    pub(crate) fn set_loss(&self, permille: u64) {
        self.0.lock().lose_permille = permille;
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        self.0.lock().pace = pace;
    }

    /// Begins another process's numbers; `noticed` where its readers see the connection change.
    pub(crate) fn restart(&self, noticed: bool) {
        let mut state = self.0.lock();
        (state.next_seq, state.pace) = (0, Pace::Answers);
        state.buffer.clear();
        if noticed {
            state.seats().for_each(|seat| seat.put(Received::Connected));
        }
    }

    pub(crate) fn publish(&self, payload: Bytes) {
        let mut state = self.0.lock();
        let frame = Frame { seq: state.next_seq, payload };
        state.next_seq += 1;
        state.buffer.push_back(frame.clone());
        while state.buffer.len() > state.buffer_max {
            state.buffer.pop_front();
        }
        let lose_permille = state.lose_permille;
        let seats: Vec<_> = state.seats().collect();
        for seat in seats {
            if !state.dice.chance(lose_permille) {
                seat.put(Received::Frame(frame.clone()));
            }
        }
    }
}

impl State {
    fn seats(&mut self) -> impl Iterator<Item = Arc<Seat>> {
        self.seats.retain(|seat| seat.strong_count() > 0);
        self.seats.iter().filter_map(Weak::upgrade).collect::<Vec<_>>().into_iter()
    }
}

impl Feeds for Line {
    fn open(&self) -> Box<dyn EventFeed> {
        let seat = Arc::new(Seat::default());
        let mut state = self.0.lock();
        if state.pace == Pace::Answers {
            seat.put(Received::Connected);
        }
        state.seats.push(Arc::downgrade(&seat));
        Box::new(Reader { seat, line: self.clone() })
    }
}

/// An agent's end.
#[derive(Debug)]
struct Reader {
    seat: Arc<Seat>,
    line: Line,
}

#[async_trait]
impl EventFeed for Reader {
    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            let arrived = self.seat.arrived.notified();
            if let Some(received) = self.seat.queue.lock().pop_front() {
                return Ok(received);
            }
            arrived.await;
        }
    }

    async fn replay(&mut self, from: u64, deadline: Duration) -> Result<Replay, Error> {
        let until = Instant::now() + deadline;
        while Instant::now() < until {
            sleep(REPLAY).await;
            let state = self.line.0.lock();
            match state.pace {
                Pace::Answers => {
                    let frames = state.buffer.iter().filter(|frame| frame.seq >= from).cloned().collect();
                    return Ok(Replay { frames, complete: true });
                }
                Pace::Refuses => {
                    let (endpoint, source) = (String::new(), std::io::ErrorKind::ConnectionRefused.into());
                    return Err(Error::Endpoint { endpoint, source });
                }
                Pace::Hangs => {}
            }
        }
        Err(Error::ReplayTimeout { from, deadline })
    }
}
