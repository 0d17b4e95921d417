//! What routing costs: CPU per request of the router's process, and latency added to an engine called directly.
//!
//! `cargo bench -p sightline --bench overhead [-- --requests 2000 --json] [-- --hand-over url] [--decode]` starts an `engine-sim` at `--speed 0` and a
//! `sightline up` attached to it, each a process of its own, and sends the same requests to both, in turns.
//! CPU is the process's user and system time from `/proc`, all threads; latencies are medians at one request in flight.

mod load;
mod process;
mod workload;

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use frontend::HandOverConfig;

use crate::load::{Client, Sample};
use crate::process::{Child, free_ports};
use crate::workload::{ALL, Workload};

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Options {
    /// Requests a workload, each way.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// Rounds a workload; the median round counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How images behind URLs are handed over: data, url or file.
    #[arg(long, value_enum, default_value_t = HandOverConfig::Data)]
    hand_over: HandOverConfig,
    /// Hand over decoded images.
    #[arg(long)]
    decode: bool,
    /// Print a JSON line a workload beside the table.
    #[arg(long)]
    json: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(clippy::print_stdout, reason = "the table is the program's output")]
fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let rows = runtime.block_on(run(&options))?;
    println!(
        "| workload | router CPU, µs a request | engine-sim CPU, µs | direct p50, µs | routed p50, µs | added p50, µs |"
    );
    println!("|---|---|---|---|---|---|");
    for (workload, row) in rows {
        println!(
            "| {} | {:.0} ({:.0}–{:.0}) | {:.0} | {:.0} | {:.0} | {:.0} |",
            workload.name,
            row.router_cpu_us,
            row.router_cpu_min_us,
            row.router_cpu_max_us,
            row.engine_cpu_us,
            row.direct_p50_us,
            row.routed_p50_us,
            row.routed_p50_us - row.direct_p50_us,
        );
        if options.json {
            println!(
                "{{\"workload\":{:?},\"router_cpu_us\":{:.1},\"direct_p50_us\":{:.1},\"routed_p50_us\":{:.1}}}",
                workload.name, row.router_cpu_us, row.direct_p50_us, row.routed_p50_us
            );
        }
    }
    Ok(())
}

/// One line of the table.
struct Row {
    router_cpu_us: f64,
    router_cpu_min_us: f64,
    router_cpu_max_us: f64,
    engine_cpu_us: f64,
    direct_p50_us: f64,
    routed_p50_us: f64,
}

async fn run(options: &Options) -> anyhow::Result<Vec<(Workload, Row)>> {
    let ports = free_ports::<4>()?;
    let [engine_port, events, replay, port] = ports;
    let media_dir = tempfile::tempdir()?;
    let engine = Child::engine_sim((engine_port, events, replay), media_dir.path())?;
    engine.ready(&format!("http://127.0.0.1:{engine_port}/health"), Duration::from_secs(30)).await?;
    let hand_over = [
        format!("--media-hand-over={}", options.hand_over),
        format!("--media-dir={}", media_dir.path().display()),
    ];
    let decode = options.decode.then(|| "--media-decode".to_owned());
    let more: Vec<String> = hand_over.into_iter().chain(decode).collect();
    let router = Child::router((engine_port, events, replay), port, &more)?;
    router.ready(&format!("http://127.0.0.1:{port}/health/ready"), Duration::from_secs(30)).await?;
    let images = workload::ImageServer::start().await?;
    let mut rows = Vec::new();
    for workload in ALL {
        let body = workload.body(&images);
        let direct = Client::new(engine_port, body.clone())?;
        let routed = Client::new(port, body)?;
        direct.send(20).await?;
        routed.send(100).await.with_context(|| format!("warming {} through the router", workload.name))?;
        let requests = options.requests / workload.weight;
        let mut rounds = Vec::new();
        for _ in 0..options.rounds {
            let per_round = (requests / options.rounds).max(20);
            let plain: Sample = direct.send(per_round).await?;
            let (router_before, engine_before) = (router.cpu_us()?, engine.cpu_us()?);
            let through: Sample = routed.send(per_round).await?;
            let count = through.count();
            rounds.push(Round {
                router_cpu_us: (router.cpu_us()? - router_before) / count,
                engine_cpu_us: (engine.cpu_us()? - engine_before) / count,
                direct_p50_us: plain.p50_us(),
                routed_p50_us: through.p50_us(),
            });
        }
        rows.push((workload, Row::of(&rounds)));
    }
    Ok(rows)
}

struct Round {
    router_cpu_us: f64,
    engine_cpu_us: f64,
    direct_p50_us: f64,
    routed_p50_us: f64,
}

impl Row {
    fn of(rounds: &[Round]) -> Self {
        let sorted = |of: fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |of: fn(&Round) -> f64| {
            let values = sorted(of);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let cpu = sorted(|round| round.router_cpu_us);
        Self {
            router_cpu_us: median(|round| round.router_cpu_us),
            router_cpu_min_us: cpu.first().copied().unwrap_or_default(),
            router_cpu_max_us: cpu.last().copied().unwrap_or_default(),
            engine_cpu_us: median(|round| round.engine_cpu_us),
            direct_p50_us: median(|round| round.direct_p50_us),
            routed_p50_us: median(|round| round.routed_p50_us),
        }
    }
}
