//! Time.

use std::time::Duration;

use futures::future::BoxFuture;

/// Tells time; the only source of it outside adapters.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Returns the time since the clock's own start; never goes back.
    fn now(&self) -> Duration;

    /// Returns milliseconds since the Unix epoch; may jump.
    fn wall_ms(&self) -> u64;

    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}
