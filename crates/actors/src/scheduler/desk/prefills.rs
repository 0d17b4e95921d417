//! Prefills that end by time: those of requests that do not stream.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use placement::Prefill;

/// Prefills by the time at which they are predicted to end.
#[derive(Debug, Default)]
pub(super) struct Prefills(BinaryHeap<Due>);

/// Prefills that wait for their time; past it they end at once.
const WAITING_MAX: usize = 65_536;

/// The longest that a prefill may be predicted to take.
const WAIT_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Due {
    at: Reverse<Duration>,
    prefill: Prefill,
}

impl Prefills {
    /// Ends a prefill `wait_ms` milliseconds from now.
    pub(super) fn end_after(&mut self, wait_ms: f64, prefill: Prefill, now: Duration) {
        if self.0.len() >= WAITING_MAX {
            prefill.end();
            return;
        }
        let wait = Duration::try_from_secs_f64(wait_ms / 1000.0).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        self.0.push(Due { at: Reverse(now + wait), prefill });
    }

    /// Ends the prefills whose time has come.
    pub(super) fn expire(&mut self, now: Duration) {
        while self.0.peek().is_some_and(|due| due.at.0 <= now) {
            if let Some(due) = self.0.pop() {
                due.prefill.end();
            }
        }
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}
