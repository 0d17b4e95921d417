#![doc = include_str!("../README.md")]

mod request;

pub use request::{KeyChain, MediaRouting, RoutingRequest};
