//! What an agent says of a holder's set of keys.

use identity::{BlockKey, MediaId};

/// One change of a holder's set of block keys; changes of one delta apply in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Blocks that the holder now has.
    Stored {
        /// The key before `keys[0]`; none where `keys[0]` begins a prompt.
        parent: Option<BlockKey>,
        /// The chain, each key the child of the one before it.
        keys: Vec<BlockKey>,
        /// Media items whose range is seen to end in this run; it may begin before it.
        media: Vec<MediaRun>,
    },
    /// Blocks that the holder no longer has, children before parents.
    Removed {
        /// The keys, none of which has a descendant that remains.
        keys: Vec<BlockKey>,
    },
    /// The holder has no block any more.
    Cleared,
}

/// A media item as an engine's events show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRun {
    /// The engine's identifier of the item.
    pub id: MediaId,
    /// Key of the block in which the item's range begins.
    pub first_key: BlockKey,
    /// Length of the range, in tokens.
    pub tokens: u32,
}
