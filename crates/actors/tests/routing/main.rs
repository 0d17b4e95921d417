//! Directory, scheduler and load board on in-memory ports, in paused time.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod directory;
mod load_board;
mod scheduler;
mod town;
