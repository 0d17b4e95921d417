#![doc = include_str!("../README.md")]

mod chunks;
mod connection;
mod engine;
mod media;
mod pool;
mod response_body;
mod transport;

pub use engine::{Config as EngineConfig, HttpEngine};
pub use media::{Config as MediaConfig, HttpMediaSource};
