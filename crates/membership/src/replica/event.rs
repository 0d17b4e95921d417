//! What a replica is told and what it wants done.

use std::time::Duration;

use identity::{Incarnation, KeySetDigest};

use crate::{Beat, Change, Delta, Run};

/// Where a replica of a holder stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing was heard of an accepted life.
    #[default]
    Unknown,
    /// The set is being fetched for the first time.
    Syncing,
    /// Deltas are applied as they come.
    Live,
    /// Something was missed or differs; what is there stays in use.
    Repairing,
    /// The holder has left.
    Gone,
    /// The index has no room for it: outside of agreement, routed by load.
    Refused,
    /// Repairs failed; the next attempt waits.
    Quarantined,
}

impl Phase {
    /// Returns the phase's name as administrators see it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Syncing => "syncing",
            Self::Live => "live",
            Self::Repairing => "repairing",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Quarantined => "quarantined",
        }
    }
}

/// Something happened to one holder.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Its card names the oldest life whose state counts.
    Floor(Incarnation),
    /// The index has blocks of this life of it, from a replica before this one.
    Known(Incarnation),
    /// It is gone.
    Leave,
    /// A delta arrived.
    Delta(Delta),
    /// A beat arrived.
    Beat(Beat),
    /// A request ended.
    Answered {
        /// As in the effect.
        ticket: u32,
        /// How.
        answer: Answer,
    },
    /// The index answered a check.
    Checked {
        /// As in the operation.
        ticket: u32,
        /// Digest of the holder's set when the check came up.
        digest: KeySetDigest,
    },
    /// The index had no room for an operation.
    NoRoom,
    /// The index began anew, empty.
    IndexReset,
    /// The link to the bus came back.
    LinkUp,
    /// Time passed; wanted every 50 ms.
    Tick,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Consecutive deltas from the sequence asked for.
    Range(Vec<Delta>),
    /// The keys of differing buckets.
    Buckets {
        /// Sequence that they contain.
        seq: u64,
        /// Digest of the whole set at `seq`.
        digest: KeySetDigest,
        /// Which buckets.
        buckets: Vec<u8>,
        /// All keys in them, parents first.
        runs: Vec<Run>,
    },
    /// Where the agent stands: the digest of its set at a sequence.
    Digest {
        /// The sequence.
        seq: u64,
        /// The digest right after it.
        digest: KeySetDigest,
    },
    /// The whole set, of the agent or of another replica.
    Snapshot {
        /// Sequence that it contains.
        seq: u64,
        /// Its digest.
        digest: KeySetDigest,
        /// All keys, parents first.
        runs: Vec<Run>,
    },
    /// The engine lives another life.
    Incarnation(Incarnation),
    /// The agent has no such range any more.
    Forgotten,
    /// The differing buckets are too many.
    TooLarge,
    /// No other replica has the set, or none serves it now.
    NoPeer,
    /// No answer, or one that makes no sense.
    Failed,
}

/// A request to a holder's agent, or to another replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The deltas from a sequence on.
    Range {
        /// The life they belong to.
        incarnation: Incarnation,
        /// The first sequence missed.
        from: u64,
    },
    /// The buckets that differ from a digest.
    Buckets {
        /// The life that is compared.
        incarnation: Incarnation,
        /// The replica's digest.
        digest: KeySetDigest,
    },
    /// The whole set.
    Snapshot {
        /// The life that is wanted.
        incarnation: Incarnation,
    },
    /// The whole set, as another replica has it.
    Peer {
        /// The life that is wanted.
        incarnation: Incarnation,
    },
    /// Where the agent stands, to prove what another replica gave.
    Digest {
        /// The life that is compared.
        incarnation: Incarnation,
    },
    /// That an agent which speaks of an earlier life goes on as a later one than this, whose agent has fallen silent.
    Succeed {
        /// The latest life ever heard of.
        silent: Incarnation,
    },
}

/// What a replica wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// An operation on the index, in order.
    Index(Op),
    /// A request, to be answered by exactly one `Answered` with its ticket.
    Ask {
        /// Names the request.
        ticket: u32,
        /// What is asked.
        ask: Ask,
    },
}

/// An operation on a holder's set in the index.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Admits the holder with a life; blocks of another life go, blocks of the same stay.
    Begin {
        /// The life.
        incarnation: Incarnation,
    },
    /// Applies a delta.
    Apply {
        /// Its sequence.
        seq: u64,
        /// Its changes.
        changes: Vec<Change>,
    },
    /// Replaces the keys of some buckets, as one change.
    ReplaceBuckets {
        /// Sequence after it.
        seq: u64,
        /// Which buckets.
        buckets: Vec<u8>,
        /// All keys in them, parents first.
        runs: Vec<Run>,
    },
    /// Replaces the whole set, as one change.
    Replace {
        /// Sequence after it.
        seq: u64,
        /// All keys, parents first.
        runs: Vec<Run>,
    },
    /// Wants the digest as it is after the operations before.
    Check {
        /// For the answer.
        ticket: u32,
    },
    /// Takes the holder out.
    End,
}

/// A replica's state as others see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The phase.
    pub phase: Phase,
    /// The life that is followed; none before the first was heard of.
    pub incarnation: Option<Incarnation>,
    /// Sequence of the last delta handed to the index.
    pub seq: u64,
    /// Whether the digest equalled the agent's when it was last compared at equal sequence; none before.
    pub agrees: Option<bool>,
    /// Answers of agents that did not verify, in all lives: an agent or an index is at fault.
    pub refuted: u64,
    /// The newest beat of that life.
    pub beat: Option<Beat>,
    /// When it was heard.
    pub beat_at: Option<Duration>,
}
