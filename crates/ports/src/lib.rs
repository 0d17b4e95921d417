#![doc = include_str!("../README.md")]

pub mod bus;
pub mod clock;
pub mod conformance;
mod dice;
pub mod engine;
pub mod event_feed;
pub mod gap_queue;
mod masked_url;
pub mod media_source;
pub mod memory_bus;
pub mod memory_registry;
pub mod registry;
mod retry;
pub mod state_store;
mod tokio_clock;

pub use bus::Bus;
pub use clock::Clock;
pub use engine::Engine;
pub use event_feed::EventFeed;
pub use gap_queue::GapQueue;
pub use masked_url::masked_url;
pub use media_source::MediaSource;
pub use memory_bus::InMemoryBus;
pub use memory_registry::InMemoryRegistry;
pub use registry::Registry;
pub use retry::Retry;
pub use state_store::{InMemoryStateStore, StateStore};
pub use tokio_clock::TokioClock;
