//! What an engine says of its cache, in no engine's encoding.

use std::fmt;

/// The longest engine hash that is accepted, in bytes.
pub const HASH_BYTES_MAX: usize = 64;

/// An engine's own name of a cached block; opaque, and meaningless on any other engine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum EngineHash {
    /// A 64-bit name.
    Int(u64),
    /// A digest of at most [`HASH_BYTES_MAX`] bytes.
    Bytes(Box<[u8]>),
}

impl fmt::Debug for EngineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(word) => write!(f, "{word:016x}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// What one scheduler step of the engine published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// The data-parallel rank, where the engine names it.
    pub rank: Option<u16>,
    /// Events that could not be read and are left out.
    pub malformed: u32,
    /// Events of a name this release does not know and left out.
    pub unknown: u32,
}

/// One change of an engine's cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Blocks became cached.
    Stored(Stored),
    /// One physical copy of each block is no longer cached.
    Removed(Removed),
    /// Nothing is cached any more.
    Cleared,
}

/// A chain of blocks that became cached.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The blocks, each the child of the one before it.
    pub hashes: Vec<EngineHash>,
    /// The block before the first; none where it begins a prompt.
    pub parent: Option<EngineHash>,
    /// The tokens of all blocks; for groups other than full attention possibly more than the blocks cover.
    pub tokens: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// The `LoRA` adapter the request ran on.
    pub lora: Lora,
    /// What else the engine hashed into the blocks.
    pub extra_keys: ExtraKeys,
    /// Where they are cached.
    pub place: Place,
}

/// Blocks of which one physical copy is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Removed {
    /// The blocks, in any order.
    pub hashes: Vec<EngineHash>,
    /// Where they were cached.
    pub place: Place,
}

/// Which of an engine's caches an event speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The memory tier.
    pub tier: Tier,
    /// Index of the KV-cache group; 0 in engines without groups.
    pub group: u32,
    /// What kind of layers the group serves, where the event says it.
    pub kind: Option<GroupKind>,
}

/// A memory tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The accelerator's own memory, from which a prefix is used without a copy.
    Gpu,
    /// Any other.
    Other,
}

/// The layers a KV-cache group serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Attention over the whole prefix: every block of it is kept.
    Full,
    /// Sliding windows, state-space layers and others: blocks may be missing in the middle.
    Partial,
}

/// The adapter named in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lora {
    /// The base model.
    None,
    /// An adapter, by name.
    Named(Box<str>),
    /// An adapter, of which the engine gives only a process-local number.
    Unnamed,
}

/// What an engine hashed into blocks beside tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum ExtraKeys {
    /// The event does not tell: media and salts stay unseen.
    Absent,
    /// One list per block, in the engine's order.
    Listed(Vec<Vec<ExtraKey>>),
}

/// One extra key of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// A bare string: an adapter's name, a cache salt, or (old engines) a media id.
    Text(Box<str>),
    /// A media item that overlaps the block.
    Media {
        /// The engine's identifier of the item.
        id: Box<str>,
        /// The item's first token relative to the block's; negative where the item begins before the block.
        offset: i64,
    },
    /// Something this release cannot name; the block is not comparable.
    Opaque,
}
