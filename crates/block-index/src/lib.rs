#![doc = include_str!("../README.md")]

mod bits;
mod epoch;
mod export;
mod head_table;
mod holding;
mod index;
mod invariant;
mod key_table;
mod limbo;
mod limits;
mod matches;
mod members;
mod reader;
mod remove;
mod runs;
mod shape;
mod shared;
mod slots;
mod stats;
mod store;
mod sweep;
mod sync;
mod tree;

pub use export::Run;
pub use index::{Index, new};
pub use invariant::Broken;
pub use limits::{HolderId, Limits, Refused, Stored};
pub use matches::{Group, Holders, Matches};
pub use reader::Reader;
pub use stats::Stats;
pub use tree::Branch;
