#![doc = include_str!("../README.md")]

pub mod card;
mod change;
mod pool;
pub mod presence;

pub use card::Card;
pub use change::{Change, MediaRun};
pub use pool::{Pool, PoolKey, pools};
pub use presence::Presence;
