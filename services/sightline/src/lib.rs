#![doc = include_str!("../README.md")]

mod ask;
pub mod cli;
mod cluster;
mod healthcheck;
mod layers;
mod media_tokens;
mod print_config;
mod signals;
pub mod up;
mod workers;
