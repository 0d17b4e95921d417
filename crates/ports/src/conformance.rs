//! What every implementation of a port must do, as suites that adapters run in their tests.
//!
//! Each suite takes a harness that makes clients of one server, and answers the first clause that does not hold.

pub mod bus;
pub mod clock;
pub mod engine;
pub mod media_source;
pub mod registry;

use std::fmt;
use std::time::Duration;

use tokio::time::timeout;

/// How long a suite waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a suite waits to see that nothing happens.
pub const CALM: Duration = Duration::from_millis(200);

/// A clause of a port's contract that does not hold.
#[derive(Debug, thiserror::Error)]
#[error("{clause}: {detail}")]
pub struct Violation {
    /// The clause.
    pub clause: &'static str,
    /// What was seen.
    pub detail: String,
}

/// One clause under test.
#[derive(Clone, Copy)]
struct Clause(&'static str);

impl Clause {
    fn violated(self, detail: impl Into<String>) -> Violation {
        Violation { clause: self.0, detail: detail.into() }
    }

    fn ok<T, E: fmt::Debug>(self, outcome: Result<T, E>) -> Result<T, Violation> {
        outcome.map_err(|error| self.violated(format!("failed: {error:?}")))
    }

    fn same<T: PartialEq + fmt::Debug>(self, seen: &T, expected: &T) -> Result<(), Violation> {
        if seen == expected {
            return Ok(());
        }
        Err(self.violated(format!("expected {expected:?}, saw {seen:?}")))
    }

    fn holds(self, condition: bool, detail: impl Into<String>) -> Result<(), Violation> {
        if condition { Ok(()) } else { Err(self.violated(detail)) }
    }

    /// Waits for what must happen.
    async fn soon<T>(self, event: impl Future<Output = T>) -> Result<T, Violation> {
        timeout(PATIENCE, event).await.map_err(|_| self.violated(format!("nothing within {PATIENCE:?}")))
    }

    /// Waits for a while in which nothing may happen.
    async fn never<T: fmt::Debug>(self, event: impl Future<Output = T>) -> Result<(), Violation> {
        match timeout(CALM, event).await {
            Ok(seen) => Err(self.violated(format!("expected nothing, saw {seen:?}"))),
            Err(_) => Ok(()),
        }
    }
}
