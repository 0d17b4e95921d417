//! The collector as a program.

use clap::Parser as _;
use otlp_collector::{Collector, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let collector = Collector::start(Config::parse()).await?;
    let stop = CancellationToken::new();
    let (mut ended, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = collector.run(stop) => anyhow::bail!("a listener has ended"),
        _ = ended.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    }
}
