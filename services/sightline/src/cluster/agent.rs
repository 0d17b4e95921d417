//! `sightline agent`: the agent of one engine of a cluster.

use tokio_util::sync::CancellationToken;

use crate::cluster::connection::Connection;

/// Runs an agent until `stop` is cancelled, then takes leave.
///
/// # Errors
/// One sentence on what cannot be used.
pub(crate) async fn run(
    config: agent::Config,
    connection: &Connection,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let own = agent::Config {
        namespace: connection.namespace.clone(),
        secret: connection.secret()?,
        tls: connection.tls()?,
        ..config
    };
    let wires = connection.connect("agent").await?;
    let ports = agent::Ports {
        bus: wires.bus.clone(),
        registry: wires.registry.clone(),
        engine: connection.engine()?,
        clock: wires.clock.clone(),
    };
    agent::run(own, ports, stop).await
}
