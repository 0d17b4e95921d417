//! The table of lease × beats × endpoint (design, membership).
//!
//! ```text
//! lease  beats  endpoint   routable              KV credit
//! yes    yes    up         yes                   yes
//! yes    lost   up         yes                   as last known, aging
//! lost   yes    up         yes                   yes
//! lost   lost   up         by load, until 30 s   no
//! any    any    down       no                    kept 10 s, then gone
//! ```

use std::time::Duration;

/// When signals count as lost and holders as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Silence after which beats are lost.
    pub beat_silence: Duration,
    /// How long a worker without lease and beats is still tried.
    pub by_load: Duration,
    /// How long the blocks of a worker whose endpoint is down are kept.
    pub kept: Duration,
    /// Failed probes in a row after which the endpoint is down.
    pub probes_failed_max: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            beat_silence: Duration::from_secs(5),
            by_load: Duration::from_secs(30),
            kept: Duration::from_secs(10),
            probes_failed_max: 3,
        }
    }
}

/// Whether requests may go to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routable {
    /// Yes.
    Yes,
    /// Yes, though nothing is known of its cache.
    ByLoad,
    /// No.
    No,
}

/// How far what is known of a worker's cache counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// Fully.
    Full,
    /// As last known, without news for this long.
    Aging {
        /// Since the last beat.
        silent: Duration,
    },
    /// Not now, but it is kept for the worker's return.
    Kept,
    /// Not at all.
    None,
}

/// What the table answers for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether requests may go there.
    pub routable: Routable,
    /// Whether its cache counts.
    pub credit: Credit,
    /// Whether it is to be forgotten.
    pub gone: bool,
    /// Whether its endpoint should be probed.
    pub suspect: bool,
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its lease is held.
    LeaseHeld,
    /// Its lease is gone.
    LeaseLost,
    /// Its agent beat, and says whether the engine answers.
    Beat {
        /// Whether the engine answers its agent.
        engine_healthy: bool,
    },
    /// A probe was answered, or a request was.
    Answered,
    /// A probe failed.
    ProbeFailed,
    /// A connection was refused.
    Refused,
}

/// One worker's row: a state machine that is told of signals and asked for its standing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    leased: bool,
    lease_lost_at: Duration,
    beat_at: Option<Duration>,
    engine_healthy: bool,
    probes_failed: u32,
    down_since: Option<Duration>,
    known_since: Duration,
}

impl Presence {
    /// Begins a row for a worker first heard of at `now`, by its lease or (without one) by a beat.
    #[must_use]
    pub const fn new(leased: bool, now: Duration) -> Self {
        Self {
            leased,
            lease_lost_at: now,
            beat_at: None,
            engine_healthy: true,
            probes_failed: 0,
            down_since: None,
            known_since: now,
        }
    }

    /// Begins a row for a worker remembered from before this process: without lease, and suspect until it answers.
    #[must_use]
    pub const fn recalled(now: Duration) -> Self {
        Self { probes_failed: 1, ..Self::new(false, now) }
    }

    /// Takes note of a signal.
    pub fn note(&mut self, signal: Signal, bounds: &Bounds, now: Duration) {
        match signal {
            Signal::LeaseHeld => self.leased = true,
            Signal::LeaseLost => {
                if self.leased {
                    self.leased = false;
                    self.lease_lost_at = now;
                }
            }
            Signal::Beat { engine_healthy } => {
                self.beat_at = Some(now);
                self.engine_healthy = engine_healthy;
            }
            Signal::Answered => {
                self.probes_failed = 0;
                self.down_since = None;
                self.engine_healthy = true;
            }
            Signal::ProbeFailed => {
                self.probes_failed = self.probes_failed.saturating_add(1);
                if self.probes_failed >= bounds.probes_failed_max {
                    self.fall(now);
                }
            }
            Signal::Refused => self.fall(now),
        }
    }

    /// Answers the table's row at `now`.
    #[must_use]
    pub fn standing(&self, bounds: &Bounds, now: Duration) -> Standing {
        if let Some(since) = self.down_since {
            let gone = !self.leased && now.saturating_sub(since) >= bounds.kept;
            let kept = now.saturating_sub(since) < bounds.kept;
            let credit = if kept { Credit::Kept } else { Credit::None };
            return Standing { routable: Routable::No, credit, gone, suspect: true };
        }
        let silent = self.silent(now);
        let beating = silent < bounds.beat_silence && (self.leased || self.beat_at.is_some());
        let suspect = !beating || !self.engine_healthy || self.probes_failed > 0;
        match (self.leased, beating) {
            (_, true) => Standing { routable: Routable::Yes, credit: Credit::Full, gone: false, suspect },
            (true, false) => {
                Standing { routable: Routable::Yes, credit: Credit::Aging { silent }, gone: false, suspect }
            }
            (false, false) => {
                let beats_lost_at = self.beat_at.map_or(self.known_since, |beat| beat + bounds.beat_silence);
                let since = self.lease_lost_at.max(beats_lost_at);
                let gone = now.saturating_sub(since) >= bounds.by_load;
                let routable = if gone { Routable::No } else { Routable::ByLoad };
                Standing { routable, credit: Credit::None, gone, suspect }
            }
        }
    }

    /// Tells whether the lease is held.
    #[must_use]
    pub const fn is_leased(&self) -> bool {
        self.leased
    }

    /// Tells whether the endpoint counts as down.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.down_since.is_some()
    }

    /// Time since the last beat, or since the worker became known when there was none.
    #[must_use]
    pub fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(self.beat_at.unwrap_or(self.known_since))
    }

    fn fall(&mut self, now: Duration) {
        self.down_since.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        beat_silence: Duration::from_secs(5),
        by_load: Duration::from_secs(30),
        kept: Duration::from_secs(10),
        probes_failed_max: 3,
    };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn check(signals: &[(u64, Signal)], at: u64, expected: (Routable, Credit, bool)) {
        let mut presence = Presence::new(true, s(0));
        for (when, signal) in signals {
            presence.note(*signal, &BOUNDS, s(*when));
        }
        let standing = presence.standing(&BOUNDS, s(at));
        assert_eq!((standing.routable, standing.credit, standing.gone), expected, "{signals:?} at {at}");
    }

    const BEAT: Signal = Signal::Beat { engine_healthy: true };

    #[test]
    fn the_table_holds() {
        use Signal::{Answered, LeaseHeld, LeaseLost, ProbeFailed, Refused};
        check(&[(1, BEAT)], 2, (Routable::Yes, Credit::Full, false));
        check(&[(1, BEAT)], 7, (Routable::Yes, Credit::Aging { silent: s(6) }, false));
        check(&[(1, BEAT)], 9999, (Routable::Yes, Credit::Aging { silent: s(9998) }, false));
        check(&[(1, LeaseLost), (2, BEAT)], 4, (Routable::Yes, Credit::Full, false));
        check(&[(1, BEAT), (1, LeaseLost)], 20, (Routable::ByLoad, Credit::None, false));
        check(&[(1, BEAT), (1, LeaseLost)], 35, (Routable::ByLoad, Credit::None, false));
        check(&[(1, BEAT), (1, LeaseLost)], 36, (Routable::No, Credit::None, true));
        check(&[(1, BEAT), (20, LeaseLost)], 49, (Routable::ByLoad, Credit::None, false));
        check(
            &[(1, BEAT), (1, LeaseLost), (30, LeaseHeld)],
            31,
            (Routable::Yes, Credit::Aging { silent: s(30) }, false),
        );
        check(&[(1, BEAT), (2, Refused)], 3, (Routable::No, Credit::Kept, false));
        check(&[(1, BEAT), (2, Refused)], 12, (Routable::No, Credit::None, false));
        check(&[(1, BEAT), (2, Refused), (3, LeaseLost)], 11, (Routable::No, Credit::Kept, false));
        check(&[(1, BEAT), (2, Refused), (3, LeaseLost)], 12, (Routable::No, Credit::None, true));
        check(&[(1, BEAT), (2, Refused), (3, Answered)], 4, (Routable::Yes, Credit::Full, false));
        check(&[(1, BEAT), (2, ProbeFailed), (3, ProbeFailed)], 4, (Routable::Yes, Credit::Full, false));
        check(
            &[(1, BEAT), (2, ProbeFailed), (3, ProbeFailed), (4, ProbeFailed)],
            5,
            (Routable::No, Credit::Kept, false),
        );
        check(
            &[(2, ProbeFailed), (3, ProbeFailed), (4, Answered), (5, ProbeFailed), (5, BEAT)],
            6,
            (Routable::Yes, Credit::Full, false),
        );
    }

    #[test]
    fn what_is_recalled_is_suspect_and_tried_by_load() {
        let mut presence = Presence::recalled(s(0));
        let standing = presence.standing(&BOUNDS, s(1));
        assert_eq!((standing.routable, standing.suspect), (Routable::ByLoad, true));
        presence.note(BEAT, &BOUNDS, s(2));
        assert_eq!(presence.standing(&BOUNDS, s(2)).routable, Routable::Yes);
        presence.note(Signal::Answered, &BOUNDS, s(3));
        assert!(!presence.standing(&BOUNDS, s(3)).suspect);
    }

    #[test]
    fn silence_and_sickness_make_suspects() {
        let mut presence = Presence::new(true, s(0));
        assert!(!presence.standing(&BOUNDS, s(1)).suspect, "new");
        assert!(presence.standing(&BOUNDS, s(6)).suspect, "silent");
        presence.note(Signal::Beat { engine_healthy: false }, &BOUNDS, s(6));
        assert!(presence.standing(&BOUNDS, s(6)).suspect, "sick");
        presence.note(BEAT, &BOUNDS, s(7));
        assert!(!presence.standing(&BOUNDS, s(7)).suspect, "well");
    }
}
