//! A whole frontend, on in-memory ports, through real sockets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail the test"
)]

mod access;
mod bad_input;
mod chats;
mod failures;
mod forms;
mod hand_over;
mod held_media;
mod hostile;
mod late_media;
mod learning;
mod media_kwargs;
mod rig;
mod tenants;
mod tls;
