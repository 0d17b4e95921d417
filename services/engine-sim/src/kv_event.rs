//! What the block manager tells the world, before any encoding.

use crate::block_hash::{BlockHash, ExtraKey};

/// One change of the set of cached blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KvEvent {
    /// Consecutive full blocks of one prompt were cached.
    Stored(Stored),
    /// One block was evicted.
    Removed(BlockHash),
    /// The cache was reset.
    Cleared,
}

/// Newly cached blocks, in prompt order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The block before the first one; `None` at the start of a prompt.
    pub(crate) parent: Option<BlockHash>,
    /// One hash for each block.
    pub(crate) hashes: Vec<BlockHash>,
    /// The blocks' tokens: `hashes.len() × block size` of them.
    pub(crate) tokens: Vec<u32>,
    /// One list for each block.
    pub(crate) extra_keys: Vec<Vec<ExtraKey>>,
    /// The request's `session_id`.
    pub(crate) session_id: Option<String>,
}
