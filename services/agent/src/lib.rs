#![doc = include_str!("../README.md")]

mod agent_id;
mod card;
mod command_desk;
mod config;
mod discovery;
mod file_desk;
mod media_dir;
mod media_shelf;
mod media_surface;
mod operator_surface;
mod speaker;
mod state_dir;
mod succession;
mod wiring;
mod zmq_feeds;

use std::time::Duration;

use adapter_http::Listener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{Config, ContentFormat};
pub use operator_surface::{AgentView, serve};
pub use speaker::Phase;
pub use state_dir::StateDir;
pub use wiring::{Agent, Ports, RankFeeds, Stead};

/// Runs an agent and shows its progress until `stop` is cancelled, then takes leave as configured.
///
/// # Errors
/// One sentence on what cannot be used.
pub async fn run(config: Config, ports: Ports, stop: CancellationToken) -> anyhow::Result<()> {
    let drain = Duration::from_millis(config.drain_ms);
    let listener = Listener::bind(config.listen, config.tls.as_ref()).await?;
    let address = listener.address();
    let agent = Agent::start(config, ports)?;
    tracing::info!(worker = %agent.worker(), %address, "agent is listening");
    let gone = CancellationToken::new();
    let mut surface = JoinSet::new();
    surface.spawn(serve(listener, vec![agent.view()], gone.clone()));
    stop.cancelled().await;
    agent.stop(drain).await;
    gone.cancel();
    surface.shutdown().await;
    Ok(())
}
