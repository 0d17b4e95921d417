//! When an actor that ended is started again.

use std::collections::VecDeque;
use std::time::Duration;

/// How often and how soon an actor is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Pause before the first restart in a window; doubles with each further one.
    pub backoff_min: Duration,
    /// The longest such pause.
    pub backoff_max: Duration,
    /// Restarts allowed in a window.
    pub restarts_max: u16,
    /// The window over which restarts are counted.
    pub window: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            restarts_max: 10,
            window: Duration::from_secs(60),
        }
    }
}

/// What to do about an actor that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again.
    Restart {
        /// After this pause.
        after: Duration,
    },
    /// The window's budget is spent, which a human should hear of; start it again when the window has moved on.
    Exhausted {
        /// After this pause.
        after: Duration,
    },
}

/// An actor's recent ends, judged by a policy.
///
/// A process never gives an actor up: past its budget it is started at the rate the budget allows.
#[derive(Clone, Debug)]
pub struct Restarts {
    policy: Policy,
    ends: VecDeque<Duration>,
}

impl Restarts {
    /// Starts with a clean record.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, ends: VecDeque::new() }
    }

    /// Records an end at `now`, a time that never goes back, and decides.
    pub fn ended(&mut self, now: Duration) -> Verdict {
        while self.ends.front().is_some_and(|end| now.saturating_sub(*end) >= self.policy.window) {
            self.ends.pop_front();
        }
        let before = self.ends.len();
        if before >= usize::from(self.policy.restarts_max) {
            let oldest = self.ends.pop_front().unwrap_or(now);
            let after = (oldest + self.policy.window).saturating_sub(now).max(self.policy.backoff_max);
            self.ends.push_back(now + after);
            return Verdict::Exhausted { after };
        }
        self.ends.push_back(now);
        let doublings = u32::try_from(before).unwrap_or(u32::MAX).min(16);
        let after = self.policy.backoff_min.saturating_mul(1 << doublings).min(self.policy.backoff_max);
        Verdict::Restart { after }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const POLICY: Policy =
        Policy { backoff_min: ms(10), backoff_max: ms(50), restarts_max: 4, window: ms(1000) };

    fn check(ends_ms: &[u64], expected: &[Verdict]) {
        let mut restarts = Restarts::new(POLICY);
        let verdicts: Vec<Verdict> = ends_ms.iter().map(|end| restarts.ended(ms(*end))).collect();
        assert_eq!(verdicts, expected, "ends at {ends_ms:?}");
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_forget() {
        let again = |after| Verdict::Restart { after: ms(after) };
        check(&[0], &[again(10)]);
        check(&[0, 1, 2, 3], &[again(10), again(20), again(40), again(50)]);
        check(&[0, 1000, 2000], &[again(10), again(10), again(10)]);
        check(
            &[0, 1, 2, 3, 100],
            &[again(10), again(20), again(40), again(50), Verdict::Exhausted { after: ms(900) }],
        );
    }

    proptest! {
        #[test]
        fn restarts_stay_within_the_budget(gaps in prop::collection::vec(0_u64..400, 1..200)) {
            let mut restarts = Restarts::new(POLICY);
            let mut now = ms(0);
            let mut starts: Vec<Duration> = Vec::new();
            for gap in gaps {
                now += ms(gap);
                let (Verdict::Restart { after } | Verdict::Exhausted { after }) = restarts.ended(now);
                now += after;
                starts.push(now);
            }
            let budget = usize::from(POLICY.restarts_max) + 1;
            for pair in starts.windows(budget + 1) {
                prop_assert!(pair[budget] - pair[0] >= POLICY.window - POLICY.backoff_max, "{pair:?}");
            }
        }
    }
}
