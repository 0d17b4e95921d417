//! The ledger's entries: what this process has dispatched to a holder, and the guards that give it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::cost::Work;

/// Absolute amounts outstanding at one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that have not ended.
    pub active_requests: u32,
    /// Prompt tokens of requests whose prefill has not ended.
    pub prefill_tokens: u64,
    /// Media tokens of such requests that are to be encoded.
    pub media_tokens: u64,
    /// Blocks that requests which have not ended occupy.
    pub decode_blocks: u64,
}

impl Gauges {
    /// Tells whether nothing is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Adds up two holders' or two frontends' amounts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            active_requests: self.active_requests.saturating_add(other.active_requests),
            prefill_tokens: self.prefill_tokens.saturating_add(other.prefill_tokens),
            media_tokens: self.media_tokens.saturating_add(other.media_tokens),
            decode_blocks: self.decode_blocks.saturating_add(other.decode_blocks),
        }
    }
}

/// One holder's gauges, shared by the ledger and the guards of its requests.
///
/// Guards subtract what they added without asking anybody, so the gauges are exact whoever else has died.
#[derive(Debug, Default)]
pub struct Gauge {
    active_requests: AtomicU32,
    prefill_tokens: AtomicU64,
    media_tokens: AtomicU64,
    decode_blocks: AtomicU64,
    version: AtomicU64,
}

impl Gauge {
    /// Opens an idle gauge whose versions are higher than `version`.
    #[must_use]
    pub fn after_version(version: u64) -> Self {
        Self { version: AtomicU64::new(version), ..Self::default() }
    }

    /// Reserves a request's work; dropping the reservation gives it back.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, work: &Work) -> Reservation {
        let amounts = Gauges {
            active_requests: 1,
            prefill_tokens: u64::from(work.prefill_tokens),
            media_tokens: u64::from(work.encode_tokens),
            decode_blocks: u64::from(work.prompt_blocks),
        };
        self.active_requests.fetch_add(1, Ordering::Relaxed);
        self.prefill_tokens.fetch_add(amounts.prefill_tokens, Ordering::Relaxed);
        self.media_tokens.fetch_add(amounts.media_tokens, Ordering::Relaxed);
        self.decode_blocks.fetch_add(amounts.decode_blocks, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        let share = Share { gauge: Arc::clone(self), amounts, prefilling: AtomicBool::new(true) };
        Reservation { share: Arc::new(share) }
    }

    /// Reads the version and the gauges; a later change has a higher version.
    #[must_use]
    pub fn read(&self) -> (u64, Gauges) {
        let version = self.version.load(Ordering::Acquire);
        let gauges = Gauges {
            active_requests: self.active_requests.load(Ordering::Relaxed),
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
            media_tokens: self.media_tokens.load(Ordering::Relaxed),
            decode_blocks: self.decode_blocks.load(Ordering::Relaxed),
        };
        (version, gauges)
    }
}

#[derive(Debug)]
struct Share {
    gauge: Arc<Gauge>,
    amounts: Gauges,
    prefilling: AtomicBool,
}

impl Share {
    fn end_prefill(&self) -> bool {
        let ended = self.prefilling.swap(false, Ordering::AcqRel);
        if ended {
            self.gauge.prefill_tokens.fetch_sub(self.amounts.prefill_tokens, Ordering::Relaxed);
            self.gauge.media_tokens.fetch_sub(self.amounts.media_tokens, Ordering::Relaxed);
            self.gauge.version.fetch_add(1, Ordering::Release);
        }
        ended
    }
}

/// A request's place in the ledger; ends exactly once, when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    share: Arc<Share>,
}

/// Ends a reservation's prefill from elsewhere; holding it keeps nothing reserved.
#[derive(Clone, Debug)]
pub struct Prefill {
    share: Arc<Share>,
}

impl Reservation {
    /// Ends the prefill: the first token has come. Answers whether it had not ended before.
    #[must_use]
    pub fn end_prefill(&self) -> bool {
        self.share.end_prefill()
    }

    /// Returns a handle that can end the prefill at its predicted time.
    #[must_use]
    pub fn prefill(&self) -> Prefill {
        Prefill { share: Arc::clone(&self.share) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.end_prefill();
        let gauge = &self.share.gauge;
        gauge.active_requests.fetch_sub(1, Ordering::Relaxed);
        gauge.decode_blocks.fetch_sub(self.share.amounts.decode_blocks, Ordering::Relaxed);
        gauge.version.fetch_add(1, Ordering::Release);
    }
}

impl Prefill {
    /// Ends the prefill, unless it has ended.
    pub fn end(&self) {
        self.share.end_prefill();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn work(tokens: u32) -> Work {
        Work {
            prefill_tokens: tokens,
            encode_tokens: tokens / 2,
            prompt_blocks: tokens / 16,
            ..Work::default()
        }
    }

    #[test]
    fn a_reservation_ends_once_on_every_path() {
        let gauge = Arc::new(Gauge::default());
        let reservation = gauge.reserve(&work(160));
        let timer = reservation.prefill();
        assert_eq!(gauge.read().1.prefill_tokens, 160);
        timer.end();
        assert!(!reservation.end_prefill());
        assert_eq!(
            gauge.read().1,
            Gauges { active_requests: 1, prefill_tokens: 0, media_tokens: 0, decode_blocks: 10 }
        );
        drop(reservation);
        timer.end();
        assert!(gauge.read().1.is_idle());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn gauges_sum_the_live_reservations(steps in prop::collection::vec((0_u8..4, 0_u32..1000), 1..200)) {
            let gauge = Arc::new(Gauge::default());
            let mut live: Vec<(Reservation, u32, bool)> = Vec::new();
            let mut version = 0;
            for (step, number) in steps {
                match (step, live.is_empty()) {
                    (0 | 1, _) | (_, true) => live.push((gauge.reserve(&work(number)), number, true)),
                    (2, false) => {
                        let at = number as usize % live.len();
                        prop_assert_eq!(live[at].0.end_prefill(), live[at].2);
                        live[at].2 = false;
                    }
                    _ => drop(live.swap_remove(number as usize % live.len())),
                }
                let expected = Gauges {
                    active_requests: u32::try_from(live.len()).unwrap(),
                    prefill_tokens: live.iter().filter(|it| it.2).map(|it| u64::from(it.1)).sum(),
                    media_tokens: live.iter().filter(|it| it.2).map(|it| u64::from(it.1 / 2)).sum(),
                    decode_blocks: live.iter().map(|it| u64::from(it.1 / 16)).sum(),
                };
                let (now, gauges) = gauge.read();
                prop_assert_eq!(gauges, expected);
                prop_assert!(now >= version);
                version = now;
            }
            live.clear();
            prop_assert!(gauge.read().1.is_idle());
        }
    }
}
