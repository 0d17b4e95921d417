//! Many clusters, each in one thread and without time, under faults by seed.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code outside of test functions")]

mod agents;
mod chronicle;
mod config;
mod dice;
mod engine;
mod feed;
mod frontend;
mod incident;
mod invariant;
mod prompts;
mod seeds;
mod weather;
mod world;

const NAMESPACE: &str = "sim";

fn model() -> identity::ModelName {
    identity::ModelName::new("m")
}
