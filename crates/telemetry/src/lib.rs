#![doc = include_str!("../README.md")]

mod propagation;
mod subscriber;

pub use propagation::{current_traceparent, set_parent};
pub use subscriber::{Config, Error, Format, Guard, init};
