#![doc = include_str!("../README.md")]

mod api;
mod block_hash;
mod block_pool;
mod config;
mod encoder_cache;
mod event_codec;
mod kv_cache;
mod kv_event;
mod kv_event_source;
mod kv_publisher;
mod listener;
mod media;
mod rank;
mod reply;
mod scheduler;
mod sequence;
mod stages;
mod time_model;
mod vocabulary;
mod wall_clock;
mod wiring;
mod zmq_endpoint;

pub use config::{Config, Invalid};
pub use event_codec::{EventFormat, HashForm};
pub use kv_event_source::KvEventSource;
pub use wiring::{Running, run, start};
