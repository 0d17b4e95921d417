//! Replicas of a changing set over a bus that loses, repeats and delays, with deaths on both sides.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code outside of test functions"
)]

mod world;

use std::time::Duration;

use world::{CALM, STEP, STORM, Weather, World};

/// Lets a storm pass and returns how long after it every replica equals the agent.
fn settles(seed: u64) -> Duration {
    let mut world = World::new(seed);
    world.run(Duration::from_secs(20), STORM);
    world.heal();
    let storm_end = world.now;
    while world.now - storm_end < Duration::from_secs(15) {
        world.run(Duration::from_millis(400), CALM);
        // The agent rests for the comparison: what is on its way arrives.
        world.run(Duration::from_millis(100), Weather { change: 0, ..CALM });
        if world.converged().is_ok() {
            return world.now - storm_end;
        }
    }
    panic!("seed {seed} does not settle: {}", world.converged().unwrap_err());
}

#[test]
fn replicas_converge_after_every_storm() {
    let mut times: Vec<(Duration, u64)> = (0..50).map(|seed| (settles(seed), seed)).collect();
    times.sort_unstable();
    let (worst, seed) = times[times.len() - 1];
    println!(
        "settled after {:?} at the median and {worst:?} at worst (seed {seed})",
        times[times.len() / 2].0
    );
    assert!(worst <= Duration::from_secs(5), "seed {seed} took {worst:?}");
}

#[test]
fn in_calm_weather_nothing_is_asked_after_joining() {
    let mut world = World::new(1);
    world.run(Duration::from_secs(3), CALM);
    for _ in 0..1000 {
        world.run(STEP, CALM);
        assert_eq!(world.asks(), 0);
    }
}
