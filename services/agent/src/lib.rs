#![doc = include_str!("../README.md")]

mod card;
mod config;
mod discovery;
mod operator_surface;
mod speaker;
mod state_dir;
mod wiring;
mod zmq_feeds;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use config::Config;
pub use operator_surface::{AgentView, serve};
pub use speaker::Phase;
pub use state_dir::StateDir;
pub use wiring::{Agent, Ports};

/// Runs an agent until `stop` is cancelled, then takes leave as configured.
///
/// # Errors
/// One sentence on what cannot be used.
pub async fn run(config: Config, ports: Ports, stop: CancellationToken) -> anyhow::Result<()> {
    let drain = Duration::from_millis(config.drain_ms);
    let agent = Agent::start(config, ports)?;
    stop.cancelled().await;
    agent.stop(drain).await;
    Ok(())
}
