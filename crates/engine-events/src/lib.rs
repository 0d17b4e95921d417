#![doc = include_str!("../README.md")]

mod batch;
mod cursor;
mod msgpack;
mod record;
mod translator;
pub mod vllm;

pub use batch::{
    Batch, EngineHash, Event, ExtraKey, ExtraKeys, GroupKind, HASH_BYTES_MAX, Lora, Place, Removed, Stored,
    Tier,
};
pub use cursor::{Cursor, Mark, Step, Verdict};
pub use msgpack::Error;
pub use record::{Record, RecordError};
pub use translator::{Checkpoint, CheckpointError, Config, Counts, KeyCopy, Translator};
