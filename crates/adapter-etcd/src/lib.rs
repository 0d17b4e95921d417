#![doc = include_str!("../README.md")]

pub mod config;
mod lease;
mod registry;
mod watch;

pub use config::{Config, Tls};
pub use registry::EtcdRegistry;
