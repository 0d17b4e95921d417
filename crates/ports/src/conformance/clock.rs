//! The contract of [`crate::Clock`].

use std::time::Duration;

use super::{Clause, Violation};
use crate::Clock;

/// Checks that time passes and sleeps last.
///
/// # Errors
/// The first clause that does not hold.
pub async fn check(clock: &dyn Clock) -> Result<(), Violation> {
    let clause = Clause("a sleep lasts at least as long as asked");
    let (before, wall_before) = (clock.now(), clock.wall_ms());
    let asked = Duration::from_millis(50);
    clause.soon(clock.sleep(asked)).await?;
    let slept = clock.now().saturating_sub(before);
    clause.holds(slept >= asked, format!("slept {slept:?}"))?;
    let clause = Clause("the wall clock runs with it");
    let passed = clock.wall_ms().saturating_sub(wall_before);
    clause.holds((40..5000).contains(&passed), format!("{passed} ms passed"))
}
