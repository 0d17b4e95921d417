//! The bus against a real `nats-server`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

mod conformance;
mod jwt;
mod security;
mod server;
