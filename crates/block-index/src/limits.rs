//! What an index accepts, and how it refuses the rest.

use identity::BlockKey;

/// Bounds of an index, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many holders may be present at once.
    pub holders_max: u32,
    /// How many distinct blocks may be stored at once, over all holders.
    pub blocks_max: u32,
}

impl Default for Limits {
    /// 1,024 holders and 64 Mi blocks (about 2 GiB when full).
    fn default() -> Self {
        Self { holders_max: 1_024, blocks_max: 64 << 20 }
    }
}

/// Names a holder within one index.
///
/// Dense from 0, at most `holders_max` of them. The id of a removed holder is given to a new one only after the sweep,
/// and the one that has been free for longest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub(crate) u32);

impl HolderId {
    /// Returns the id's number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the id's number for use as an index into a table of holders.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a store changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Blocks that the holder did not have before.
    pub added: u32,
    /// Blocks among them that no holder had in the index.
    pub fresh: u32,
}

/// Why the index did not accept a change; nothing was changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Every holder id is in use or waits for the sweep.
    #[error("no room for a holder beyond {holders_max}")]
    Holders {
        /// The limit.
        holders_max: u32,
    },
    /// The new blocks do not fit.
    #[error("no room for {wanted} blocks beside {blocks} of at most {blocks_max}")]
    Blocks {
        /// Blocks that would be new.
        wanted: u32,
        /// Blocks stored now.
        blocks: u32,
        /// The limit.
        blocks_max: u32,
    },
    /// The id names no present holder.
    #[error("no holder {0:?} in the index")]
    NoHolder(HolderId),
    /// The holder does not have the block after which keys were to be stored.
    #[error("parent block {0} is not held")]
    NoParent(BlockKey),
    /// The key is stored after another parent; keys name their prefix, so one of the two feeds is wrong.
    #[error("block {0} has another parent")]
    SecondParent(BlockKey),
}
