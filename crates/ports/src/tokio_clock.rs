//! Time as tokio keeps it, paused time in tests included.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use crate::Clock;

/// Tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Instant,
    wall: Wall,
}

#[derive(Clone, Copy, Debug)]
enum Wall {
    System,
    From(u64),
}

impl TokioClock {
    /// Starts now, with the system's wall clock.
    #[must_use]
    pub fn system() -> Self {
        Self { start: Instant::now(), wall: Wall::System }
    }

    /// Starts now, with a wall clock that begins at `wall_ms` and runs with tokio's time; for simulations.
    #[must_use]
    pub fn from_wall(wall_ms: u64) -> Self {
        Self { start: Instant::now(), wall: Wall::From(wall_ms) }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        match self.wall {
            Wall::System => system_ms(),
            Wall::From(start_ms) => start_ms.saturating_add(to_ms(self.now())),
        }
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        sleep(duration).boxed()
    }
}

#[expect(clippy::disallowed_types, reason = "this adapter is where the system's time comes in")]
fn system_ms() -> u64 {
    use std::time::SystemTime;
    to_ms(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
