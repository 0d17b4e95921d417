#![doc = include_str!("../README.md")]

mod digest;
mod holder;
mod key;
mod media;

pub use digest::{BUCKETS, Bucket, KeySetDigest};
pub use holder::{Holder, Incarnation, ModelName, Rank, WorkerId};
pub use key::{BlockKey, KeyScope, SCHEME, block_keys, chain_key, extend_key, local_key};
pub use media::{MediaId, MediaKey, MediaSpan};
