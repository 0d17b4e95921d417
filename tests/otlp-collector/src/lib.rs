#![doc = include_str!("../README.md")]

mod collector;
mod span;

pub use collector::{Collector, Config};
pub use span::Span;
