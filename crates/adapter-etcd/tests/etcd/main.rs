//! The registry against a real `etcd`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod conformance;
mod security;
mod server;
