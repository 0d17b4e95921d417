//! The bounds of replication.

use std::time::Duration;

/// When a replica acts, and how much it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a missing delta may still arrive by itself.
    pub gap_patience: Duration,
    /// Silence after which an agent is not asked any more.
    pub silence: Duration,
    /// Repairs begin up to this much later, so that replicas do not ask as one.
    pub jitter_max: Duration,
    /// Pause after a failed request; doubles with each further one.
    pub retry_min: Duration,
    /// Failures in a row after which a holder is quarantined.
    pub failures_max: u32,
    /// Length of the first quarantine; doubles with each further one after answers that did not verify.
    pub quarantine_min: Duration,
    /// The longest quarantine.
    pub quarantine_max: Duration,
    /// How long a refused holder stays away.
    pub refused_pause: Duration,
    /// How long a request or check may be under way before it counts as failed.
    pub patience: Duration,
    /// Beats in a row that lag behind the replica, after which the agent is believed to have gone back.
    pub behind_max: u32,
    /// Deltas that a buffer holds.
    pub buffer_deltas_max: usize,
    /// Memory that a buffer's deltas take, in bytes.
    pub buffer_bytes_max: usize,
    /// Requests that all replicas of a model have under way.
    pub asks_max: usize,
    /// Holders that are followed.
    pub holders_max: usize,
    /// How long readiness waits for carded holders.
    pub readiness_patience: Duration,
    /// Silence after which a holder without a card is forgotten.
    pub forget_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            gap_patience: Duration::from_millis(200),
            silence: Duration::from_secs(5),
            jitter_max: Duration::from_millis(100),
            retry_min: Duration::from_millis(100),
            failures_max: 3,
            quarantine_min: Duration::from_secs(1),
            quarantine_max: Duration::from_secs(30),
            refused_pause: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            behind_max: 3,
            buffer_deltas_max: 8_192,
            buffer_bytes_max: 8 << 20,
            asks_max: 8,
            holders_max: 1_024,
            readiness_patience: Duration::from_secs(10),
            forget_after: Duration::from_secs(10),
        }
    }
}
