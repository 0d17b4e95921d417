#![doc = include_str!("../README.md")]

mod change;

pub use change::{Change, MediaRun};
