#![doc = include_str!("../README.md")]

mod export;
mod propagation;
mod subscriber;
mod traced_bus;

pub use export::{SpanTally, span_tally};
pub use propagation::{current_traceparent, set_parent};
pub use subscriber::{Config, Error, Format, Guard, init};
pub use traced_bus::TracedBus;
