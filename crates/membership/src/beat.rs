//! What an agent says every second.

use identity::{Holder, Incarnation, ModelName, Rank, WorkerId};

/// The heartbeat of a holder, published on the subject of its deltas and in order with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    /// The scheme of its keys, such as [`identity::SCHEME`].
    pub scheme: String,
    /// The model that the worker serves.
    pub model: ModelName,
    /// The engine endpoint.
    pub worker: WorkerId,
    /// The data-parallel rank.
    pub rank: Rank,
    /// The engine life that the rest belongs to.
    pub incarnation: Incarnation,
    /// Sequence of the last delta; `blocks` and `digest` hold right after it.
    pub seq: u64,
    /// Number of keys.
    pub blocks: u64,
    /// [`identity::KeySetDigest::fold`] of the set of keys.
    pub digest: u64,
    /// Requests that the engine runs.
    pub running: u32,
    /// Requests that wait in the engine.
    pub waiting: u32,
    /// Share of the engine's KV cache in use, 0 to 1.
    pub kv_usage: f32,
    /// Whether the engine answers.
    pub engine_healthy: bool,
    /// Share of the engine's cached blocks that the agent knows, 0 to 1.
    pub coverage: f32,
}

impl Beat {
    /// Returns whose beat it is.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder { worker: self.worker.clone(), rank: self.rank }
    }
}
