//! From an engine's event to the index of every replica, beside what NATS alone takes.
//!
//! `cargo bench -p sightline --bench visible [-- --events 4000 --rate 200]` starts etcd, nats-server, an `engine-sim` at
//! `--speed 0` and its `agent`, each a process of its own, and keeps three replicas in this process, each on its own
//! connections. Each request makes the engine publish one batch of four blocks. Measured, on the machine's one clock:
//!
//! ```text
//! engine ──ZMQ──► agent ──NATS──► replica ×3        the batch's own time stamp → the last of three indexes shows it
//! this process ───NATS──────────► subscriber ×3     a message of a delta's size sent → the last of three has it
//! ```
//! in turns, so that both meet the same machine.

mod nats;
mod replicas;
mod servers;

use std::time::Duration;

use anyhow::ensure;
use clap::Parser;

use crate::nats::OneWay;
use crate::replicas::{Batches, Replicas};
use crate::servers::Servers;

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Options {
    /// Events, and as many messages.
    #[arg(long, default_value_t = 4000)]
    events: u32,
    /// Events in a second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How far p99 may be above NATS's own.
const BUDGET_US: f64 = 5000.0;
const REPLICAS: usize = 3;

#[expect(clippy::print_stdout, reason = "the table is the program's output")]
fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (visible, first, bus) = runtime.block_on(run(&options))?;
    println!("| from → to | samples | p50, µs | p90, µs | p99, µs | max, µs |");
    println!("|---|---|---|---|---|---|");
    visible.print("engine publishes → visible in the last of 3 replicas");
    first.print("engine publishes → visible in the first of 3 replicas");
    bus.print("NATS alone, one way → the last of 3 subscribers");
    let above = visible.at(0.99) - bus.at(0.99);
    let within = if above <= BUDGET_US { "within" } else { "not within" };
    println!(
        "\np99 is {:.2} ms above NATS's own, {within} the budget of {:.0} ms",
        above / 1e3,
        BUDGET_US / 1e3
    );
    Ok(())
}

async fn run(options: &Options) -> anyhow::Result<(Sample, Sample, Sample)> {
    let servers = Servers::start().await?;
    let batches = Batches::listen(&servers);
    let replicas = Replicas::start(&servers, REPLICAS).await?;
    let mut bus = OneWay::start(&servers, REPLICAS).await?;
    let half = Duration::from_secs(1) / options.rate / 2;
    let mut turns = tokio::time::interval(half);
    for number in 0..options.events {
        turns.tick().await;
        bus.send().await?;
        turns.tick().await;
        servers.store(number).await?;
    }
    let published = batches.take(options.events as usize).await?;
    let seen = replicas.take(u64::from(options.events)).await?;
    ensure!(servers.agent_seq().await? == u64::from(options.events), "batches and deltas are not one to one");
    let delays = |choose: fn(f64, f64) -> f64| {
        let of = |(number, at): (usize, &f64)| {
            let shown = seen.iter().filter_map(|replica| replica.get(number)).copied();
            shown.reduce(choose).map(|shown| shown - at)
        };
        Sample::new(published.iter().enumerate().filter_map(of).collect())
    };
    Ok((delays(f64::max), delays(f64::min), Sample::new(bus.take(options.events as usize).await?)))
}

/// Delays, sorted.
struct Sample(Vec<f64>);

impl Sample {
    fn new(mut delays_us: Vec<f64>) -> Self {
        delays_us.sort_by(f64::total_cmp);
        Self(delays_us)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank within a short list"
    )]
    fn at(&self, share: f64) -> f64 {
        let rank = ((self.0.len() as f64 * share).ceil() as usize).clamp(1, self.0.len().max(1));
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    #[expect(clippy::print_stdout, reason = "the table is the program's output")]
    fn print(&self, name: &str) {
        let (p50, p90, p99, most) = (self.at(0.5), self.at(0.9), self.at(0.99), self.at(1.0));
        println!("| {name} | {} | {p50:.0} | {p90:.0} | {p99:.0} | {most:.0} |", self.0.len());
    }
}

/// The machine's clock, in microseconds: the one that the engine stamps its batches with.
#[expect(clippy::disallowed_types, reason = "the clock port tells milliseconds only")]
fn now_us() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64() * 1e6)
}
