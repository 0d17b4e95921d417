//! `sightline indexer`: an index replica of a cluster without a frontend.

use adapter_nats::service::Offer;
use indexer::Indexer;
use tokio_util::sync::CancellationToken;

use crate::cluster::connection::{self, Connection};

/// Runs an indexer, over HTTP and as a NATS micro service, until `stop` is cancelled.
///
/// # Errors
/// One sentence on what cannot be used.
pub(crate) async fn run(
    config: indexer::Config,
    connection: &Connection,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let own = indexer::Config {
        namespace: connection.namespace.clone(),
        secret: connection.secret()?,
        tls: connection.tls()?,
        ..config
    };
    let wires = connection.connect("indexer").await?;
    let last_view = connection::last_view(own.cache_dir.as_deref())?;
    let ports = indexer::Ports {
        last_view,
        bus: wires.bus.clone(),
        registry: wires.registry.clone(),
        engine: connection.engine()?,
        clock: wires.clock.clone(),
    };
    let indexer = Indexer::start(&own, ports).await?;
    let offered = wires.nats.offer(&offer(connection)).await?;
    tracing::info!(address = %indexer.address(), "indexer is listening");
    let queries = indexer.queries().clone();
    let answer =
        |question: &[u8]| queries.answer(question).map_err(|refused| (refused.status(), refused.to_string()));
    tokio::select! {
        () = offered.serve(answer) => tracing::warn!("the NATS service ended"),
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    indexer.stop().await;
    Ok(())
}

fn offer(connection: &Connection) -> Offer {
    Offer {
        name: "sightline-indexer".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: "Tells which worker has how much of a prompt in its KV cache".to_owned(),
        subject: wire::subject::query(&connection.namespace),
    }
}
