//! Whether trying again can help.

use std::time::Duration;

/// A port error's advice to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call will fail again.
    Never,
    /// The same call may succeed after this long.
    After(Duration),
}
