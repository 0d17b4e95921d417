#![doc = include_str!("../README.md")]

pub mod config;
mod lease;
mod registry;
mod watch;

pub use config::{Config, Refusal, Tls};
pub use registry::EtcdRegistry;
