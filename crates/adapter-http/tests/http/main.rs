//! The adapters against real sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod conformance;
mod engine;
mod media;
mod server;
mod ssrf;
mod tls;
