#![doc = include_str!("../README.md")]

mod endpoint;
mod feed;

pub use endpoint::{Attach, dialled, engine_binds, rank_endpoint};
pub use feed::{Config, ZmqFeed};
