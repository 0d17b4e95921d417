#![doc = include_str!("../README.md")]

mod config;
mod desks;
mod lookups;
mod query;
mod surface;
mod wiring;

pub use config::Config;
pub use query::{Queries, Refused};
pub use wiring::{Indexer, Ports};
