//! The simulated engine from outside: HTTP and ZMQ on loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this binary is tests"
)]

mod chat;
mod completions;
mod errors;
mod feed;
mod harness;
mod images;
mod load;
mod ranks;
mod recorded;
