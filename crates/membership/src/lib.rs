#![doc = include_str!("../README.md")]

mod beat;
pub mod card;
mod change;
mod delta;
mod pool;
pub mod presence;
mod rendering;
pub mod replica;
pub mod ring;

pub use beat::Beat;
pub use card::Card;
pub use change::{Change, MediaRun};
pub use delta::{Delta, Run};
pub use pool::{Pool, PoolKey, pools};
pub use presence::Presence;
pub use rendering::Rendering;
pub use ring::Ring;
