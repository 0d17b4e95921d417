#![doc = include_str!("../README.md")]

pub mod bus;
pub mod clock;
pub mod engine;
pub mod event_feed;
pub mod media_source;
pub mod registry;
mod retry;

pub use bus::Bus;
pub use clock::Clock;
pub use engine::Engine;
pub use event_feed::EventFeed;
pub use media_source::MediaSource;
pub use registry::Registry;
pub use retry::Retry;
