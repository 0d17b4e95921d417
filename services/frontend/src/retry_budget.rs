//! When a request may go to a second worker.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

/// Retries are at most a tenth of the requests, and requests that killed two workers are set aside.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// In hundredths of a retry.
    credit: AtomicI64,
    any: AtomicBool,
    killers: Mutex<VecDeque<(u64, Duration)>>,
}

const PER_REQUEST: i64 = 10;
const PER_RETRY: i64 = 100;
const CREDIT_MAX: i64 = 2000;
const KILLERS_MAX: usize = 1024;
const KILLER_FOR: Duration = Duration::from_secs(600);

impl RetryBudget {
    pub(crate) fn new() -> Self {
        Self { credit: AtomicI64::new(CREDIT_MAX), any: AtomicBool::new(false), killers: Mutex::default() }
    }

    /// Counts a request.
    pub(crate) fn request(&self) {
        if self.credit.fetch_add(PER_REQUEST, Ordering::Relaxed) >= CREDIT_MAX {
            self.credit.store(CREDIT_MAX, Ordering::Relaxed);
        }
    }

    /// Takes a retry, if there is one to take.
    pub(crate) fn take(&self) -> bool {
        let taken = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |credit| {
            (credit >= PER_RETRY).then_some(credit - PER_RETRY)
        });
        taken.is_ok()
    }

    /// Sets a request aside: two workers died of it.
    pub(crate) fn quarantine(&self, body: &[Bytes], now: Duration) {
        let mut killers = self.killers.lock();
        if killers.len() >= KILLERS_MAX {
            killers.pop_front();
        }
        killers.push_back((fingerprint(body), now));
        self.any.store(true, Ordering::Release);
    }

    /// Says whether a request is set aside; `body` is asked for only if any are.
    pub(crate) fn quarantined(&self, body: impl FnOnce() -> Vec<Bytes>, now: Duration) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut killers = self.killers.lock();
        while killers.front().is_some_and(|(_, since)| now.saturating_sub(*since) > KILLER_FOR) {
            killers.pop_front();
        }
        if killers.is_empty() {
            self.any.store(false, Ordering::Release);
            return false;
        }
        let fingerprint = fingerprint(&body());
        killers.iter().any(|(killer, _)| *killer == fingerprint)
    }
}

fn fingerprint(body: &[Bytes]) -> u64 {
    let mut hasher = Xxh3::new();
    for chunk in body {
        hasher.update(chunk);
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_tenth_of_requests() {
        let budget = RetryBudget::new();
        let burst = (0..1000).filter(|_| budget.take()).count();
        assert_eq!(burst, 20);
        let steady = (0..1000)
            .filter(|_| {
                budget.request();
                budget.take()
            })
            .count();
        assert_eq!(steady, 100);
    }

    #[test]
    fn a_killer_is_set_aside_for_a_while() {
        let budget = RetryBudget::new();
        let body = |text: &'static str| vec![Bytes::from_static(text.as_bytes())];
        let now = Duration::from_secs(1);
        assert!(!budget.quarantined(|| body("bad"), now));
        budget.quarantine(&body("bad"), now);
        assert!(budget.quarantined(|| vec![Bytes::from_static(b"b"), Bytes::from_static(b"ad")], now));
        assert!(!budget.quarantined(|| body("good"), now));
        assert!(!budget.quarantined(|| body("bad"), now + KILLER_FOR * 2));
    }
}
