//! `sightline up`: frontends, agents and engines in one process, on in-memory ports.

mod config;
mod engine_spec;
mod engines;
mod fleet;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use config::Config;
pub use engine_spec::EngineSpec;
pub use fleet::Fleet;

const READY_DEADLINE: Duration = Duration::from_secs(60);

/// Runs everything until `stop` is cancelled, and says on standard output what runs where.
///
/// # Errors
/// One sentence on what does not start.
#[expect(clippy::print_stdout, reason = "what runs where is what the person asked for")]
pub async fn run(config: Config, stop: CancellationToken) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    println!("{}", introduction(&config));
    let fleet = tokio::select! {
        started = Fleet::start(&config) => started?,
        () = stop.cancelled() => return Ok(()),
    };
    for line in fleet.lines() {
        println!("{line}");
    }
    tokio::select! {
        ready = fleet.ready(READY_DEADLINE) => ready?,
        () = stop.cancelled() => {
            fleet.stop().await;
            return Ok(());
        }
    }
    println!("ready in {:.1} s; try", began.elapsed().as_secs_f64());
    println!("{}", fleet.example());
    println!("stop with Ctrl-C");
    stop.cancelled().await;
    println!("stopping");
    fleet.stop().await;
    Ok(())
}

fn introduction(config: &Config) -> String {
    let engines = match config.engine.len() {
        0 if config.engines_as_processes => {
            counted(config.workers.into(), "simulated engine") + ", each a process"
        }
        0 => counted(config.workers.into(), "simulated engine"),
        count => counted(count, "attached engine"),
    };
    format!(
        "sightline {}: model {} from {}, blocks of {} tokens, {}, {engines}",
        env!("CARGO_PKG_VERSION"),
        config.model_name(),
        config.model_dir.display(),
        config.block_size,
        counted(config.frontends.into(), "frontend")
    )
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
