//! The bounded queue behind a subscription.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::bus::{Message, Received};

/// A queue that drops its oldest messages when it is full, and says so where they would have been.
///
/// Cheap to clone; one reader. Adapters push from wherever messages arrive.
#[derive(Clone, Debug)]
pub struct GapQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    queue_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Received>,
    messages: usize,
    closed: bool,
}

impl GapQueue {
    /// Makes an empty queue for up to `queue_max` messages, at least one.
    #[must_use]
    pub fn new(queue_max: usize) -> Self {
        let shared = Shared { state: Mutex::default(), changed: Notify::new(), queue_max: queue_max.max(1) };
        Self { shared: Arc::new(shared) }
    }

    /// Appends a message; drops the oldest where there is no room.
    pub fn push(&self, message: Message) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        state.waiting.push_back(Received::Message(message));
        state.messages += 1;
        if state.messages > self.shared.queue_max {
            state.drop_oldest();
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Notes that messages were lost before the next one.
    pub fn push_gap(&self) {
        let mut state = self.shared.state.lock();
        if state.closed || state.waiting.back() == Some(&Received::Gap) {
            return;
        }
        state.waiting.push_back(Received::Gap);
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Ends the queue: what waits can still be read.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
    }

    /// Waits for the next message or gap; none once the queue is closed and empty. Safe to cancel.
    pub async fn next(&self) -> Option<Received> {
        loop {
            {
                let mut state = self.shared.state.lock();
                if let Some(received) = state.waiting.pop_front() {
                    if received != Received::Gap {
                        state.messages -= 1;
                    }
                    return Some(received);
                }
                if state.closed {
                    return None;
                }
            }
            self.shared.changed.notified().await;
        }
    }
}

impl State {
    /// Drops the oldest message and leaves one gap in front of the rest.
    fn drop_oldest(&mut self) {
        while let Some(received) = self.waiting.pop_front() {
            if received != Received::Gap {
                self.messages -= 1;
                break;
            }
        }
        if self.waiting.front() != Some(&Received::Gap) {
            self.waiting.push_front(Received::Gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(queue_max: usize, pushed: &str, expected: &str) {
        let queue = GapQueue::new(queue_max);
        for push in pushed.chars() {
            match push {
                '-' => queue.push_gap(),
                name => queue.push(Message { subject: name.to_string(), ..Message::default() }),
            }
        }
        queue.close();
        let mut read = String::new();
        while let Some(Some(received)) = futures::FutureExt::now_or_never(queue.next()) {
            read.push_str(match &received {
                Received::Message(message) => &message.subject,
                Received::Gap => "-",
            });
        }
        assert_eq!(read, expected, "{pushed:?} into {queue_max}");
    }

    #[test]
    fn the_oldest_give_way_to_a_gap() {
        check(3, "abc", "abc");
        check(3, "abcd", "-bcd");
        check(3, "abcdefgh", "-fgh");
        check(3, "a-b", "a-b");
        check(3, "a---b", "a-b");
        check(2, "a-b-cd", "-cd");
        check(2, "a-bcd", "-cd");
        check(1, "-abc-", "-c-");
        check(0, "ab", "-b");
    }
}
