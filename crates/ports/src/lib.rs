#![doc = include_str!("../README.md")]

pub mod bus;
pub mod clock;
pub mod event_feed;
pub mod registry;
mod retry;

pub use bus::Bus;
pub use clock::Clock;
pub use event_feed::EventFeed;
pub use registry::Registry;
pub use retry::Retry;
