#![doc = include_str!("../README.md")]

mod ask;
pub mod cli;
mod healthcheck;
mod layers;
mod signals;
pub mod up;
