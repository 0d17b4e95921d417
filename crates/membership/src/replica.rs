//! How a replica keeps its copy of a holder's set of keys equal to the agent's.
//!
//! ```text
//!            first sign of life              verified at S             gap, or digests differ at equal seq
//! Unknown ─────────────────────► Syncing ───────────────────► Live ──────────────────────────────────────► Repairing
//!    ▲                              │  ▲                        ▲                                               │
//!    │ floor rises                  │  │ pause over             └──────── range closed, or verified at S ───────┤
//!    └───────── (any)               ▼  │                                                                        │
//!                     Quarantined | Refused ◄──── three failures | no room ─────────────────────────────────────┘
//! Gone ◄──── told to leave; back to Syncing with the next sign of an accepted life
//!
//! gap:        Range ─Forgotten─► measure own digest ─► Buckets ─TooLarge, or differing still─► Snapshot
//! divergence:                    measure own digest ─► Buckets ─ … ─► Snapshot
//! joining:                       measure own digest ─► Peer if it is empty, else Buckets
//!             Peer ─► Digest of the agent ─equal at equal seq─► Live;  ─NoPeer─► Snapshot;  ─differing─► Buckets
//! ```
//!
//! Deltas reach the index in order. While buckets or a snapshot are fetched they wait in a bounded buffer; the answer names
//! its sequence S, replaces as one change, is verified at S, and the buffer is drained.

mod buffer;
mod event;
mod machine;
mod policy;
mod replicas;

pub use event::{Answer, Ask, Effect, Event, Op, Phase, Status};
pub use machine::Replica;
pub use policy::Policy;
pub use replicas::Replicas;
