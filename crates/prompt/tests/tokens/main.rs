//! Tokens: segments against whole texts, media in their places, completions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile;
mod learned;
mod media;
mod segments;
