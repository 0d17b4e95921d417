#![doc = include_str!("../README.md")]

mod authorities;
mod chunks;
mod connection;
mod engine;
mod listener;
mod media;
mod pool;
mod response_body;
mod server;
mod transport;

pub use authorities::Authorities;
pub use engine::{Config as EngineConfig, HttpEngine};
pub use listener::{ListenError, Listener, TlsError, TlsFiles};
pub use media::{Config as MediaConfig, HttpMediaSource, Resolver};
pub use server::{Bounds, serve};
