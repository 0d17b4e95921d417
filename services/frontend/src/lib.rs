#![doc = include_str!("../README.md")]

mod access;
mod answer;
mod api_error;
mod config;
mod metrics;
mod record;
mod record_log;
mod request_body;
mod request_id;
mod server;
mod usage;

pub use config::{Config, KeyConfig, Limits, MediaConfig, ModelConfig};
