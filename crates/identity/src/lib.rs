#![doc = include_str!("../README.md")]

mod chain;
mod digest;
mod holder;
mod key;
mod key_cache;
mod media;

pub use digest::{BUCKETS, Bucket, KeySetDigest};
pub use holder::{Holder, Incarnation, ModelName, Rank, WorkerId};
pub use key::{BlockKey, KeyScope, SCHEME, block_keys, chain_key, extend_key, extend_keys, local_key};
pub use key_cache::{KeyCache, Prompt, Segment};
pub use media::{MediaId, MediaKey, MediaSpan};
