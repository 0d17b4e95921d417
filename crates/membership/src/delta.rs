//! The numbered steps by which a holder's set of keys changes.

use identity::{BlockKey, Holder, Incarnation, ModelName, Rank, WorkerId};

use crate::Change;

/// One step of a holder's set of keys, as its agent publishes it.
///
/// Within an incarnation `seq` grows by one from delta to delta and never goes back, agent restarts included; the set is
/// empty at the sequence before the first delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The scheme of its keys, such as [`identity::SCHEME`].
    pub scheme: String,
    /// The model that the worker serves.
    pub model: ModelName,
    /// The engine endpoint.
    pub worker: WorkerId,
    /// The data-parallel rank.
    pub rank: Rank,
    /// The engine life that the step belongs to.
    pub incarnation: Incarnation,
    /// Number of the step.
    pub seq: u64,
    /// The changes, applied in order as one.
    pub changes: Vec<Change>,
}

impl Delta {
    /// Returns whose set changes.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder { worker: self.worker.clone(), rank: self.rank }
    }

    /// Estimates the memory that the delta takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let changes: usize = self.changes.iter().map(change_bytes).sum();
        size_of::<Self>() + changes
    }
}

fn change_bytes(change: &Change) -> usize {
    let keys = |keys: &[BlockKey]| size_of_val(keys);
    size_of::<Change>()
        + match change {
            Change::Stored { keys: stored, media, .. } => {
                let media: usize = media.iter().map(|run| size_of_val(run) + run.id.as_str().len()).sum();
                keys(stored) + media
            }
            Change::Removed { keys: removed } => keys(removed),
            Change::Cleared => 0,
        }
}

/// Consecutive keys of a holder, each the child of the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The key before `keys[0]`; none where `keys[0]` begins a prompt.
    pub parent: Option<BlockKey>,
    /// The keys, at least one.
    pub keys: Vec<BlockKey>,
}
