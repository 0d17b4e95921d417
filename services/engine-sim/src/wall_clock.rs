//! The time of day, for the timestamps that the API and the events carry; nothing is decided by it.

use std::time::Duration;

/// Returns the time since the Unix epoch.
#[must_use]
pub(crate) fn now() -> Duration {
    #[expect(clippy::disallowed_types, reason = "the one place that reads the time of day")]
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}
