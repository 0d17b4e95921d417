#![doc = include_str!("../README.md")]

mod bus;
pub mod config;
mod message;
pub mod service;

pub use bus::NatsBus;
pub use config::{Config, Credentials, Refusal, Tls};
