//! What routing costs: CPU per request of the router's process, and latency added to an engine called directly.
//!
//! `cargo bench -p sightline --bench overhead [-- --requests 2000 --json] [-- --hand-over url] [--decode]` starts an `engine-sim` at `--speed 0` and a
//! `sightline up` attached to it, each a process of its own, and sends the same requests to both, in turns.
//! CPU is the process's user and system time from `/proc`, all threads; latencies are medians at one request in flight.
//! Below the table: an image in the request beside its bytes proxied untouched, copied once and hashed once; and how often
//! the origin was asked for images with 10,000 URLs.

mod bare;
mod load;
mod process;
mod workload;

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use frontend::HandOverConfig;

use crate::load::{Client, Sample};
use crate::process::{Child, free_ports};
use crate::workload::{ALL, ImageServer, Workload};

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
    /// Different URLs, five of each image.
    #[arg(long, default_value_t = 10_000)]
    urls: u32,
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
    let Measured { rows, bare, urls } = runtime.block_on(run(&options))?;
    println!(
        "| workload | router CPU, µs a request | engine-sim CPU, µs | direct p50, µs | routed p50, µs | added p50, µs | origin requests |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (workload, row) in &rows {
        println!(
            "| {} | {:.0} ({:.0}–{:.0}) | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            workload.name,
            row.router_cpu_us,
            row.router_cpu_min_us,
            row.router_cpu_max_us,
            row.engine_cpu_us,
            row.direct_p50_us,
            row.routed_p50_us,
            row.routed_p50_us - row.direct_p50_us,
            row.origin_requests,
        );
        if options.json {
            println!(
                "{{\"workload\":{:?},\"router_cpu_us\":{:.1},\"direct_p50_us\":{:.1},\"routed_p50_us\":{:.1}}}",
                workload.name, row.router_cpu_us, row.direct_p50_us, row.routed_p50_us
            );
        }
    }
    let cpu_us = |name| {
        rows.iter().find(|(workload, _)| workload.name == name).map_or(0.0, |(_, row)| row.router_cpu_us)
    };
    let ((copy, hash), routed, proxied) = (bare, cpu_us(workload::DATA_URI), cpu_us(workload::UPLOAD));
    let floor = proxied + copy + hash;
    println!(
        "\n{}: {routed:.0} µs; proxied {proxied:.0} µs + copied {copy:.0} µs + hashed {hash:.0} µs = {floor:.0} µs: {:.2} times",
        workload::DATA_URI,
        routed / floor
    );
    println!(
        "{} URLs of {} images: {} requests to the origin, {:.0} µs of router CPU a request of four",
        options.urls,
        workload::spelt_images(options.urls),
        urls.origin_requests,
        urls.router_cpu_us
    );
    Ok(())
}

/// All that was measured.
struct Measured {
    rows: Vec<(Workload, Row)>,
    /// A copy and a digest of the data URI's request, in microseconds.
    bare: (f64, f64),
    urls: Urls,
}

/// Requests with new URLs.
struct Urls {
    origin_requests: u64,
    router_cpu_us: f64,
}

/// One line of the table.
struct Row {
    router_cpu_us: f64,
    router_cpu_min_us: f64,
    router_cpu_max_us: f64,
    engine_cpu_us: f64,
    direct_p50_us: f64,
    routed_p50_us: f64,
    origin_requests: u64,
}

async fn run(options: &Options) -> anyhow::Result<Measured> {
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
    let images = ImageServer::start().await?;
    let (mut rows, mut bare) = (Vec::new(), (0.0, 0.0));
    for workload in ALL {
        let ask = workload.ask(&images);
        if workload.name == workload::DATA_URI {
            bare = bare::copy_and_hash_us(&ask.body);
        }
        let direct = Client::new(engine_port, ask.clone())?;
        let routed = Client::new(port, ask)?;
        direct.send(20).await?;
        routed.send(100).await.with_context(|| format!("warming {} through the router", workload.name))?;
        let requests = options.requests / workload.weight;
        let mut rounds = Vec::new();
        for _ in 0..options.rounds {
            let per_round = (requests / options.rounds).max(20);
            let plain: Sample = direct.send(per_round).await?;
            let asked_before = images.requests();
            let (router_before, engine_before) = (router.cpu_us()?, engine.cpu_us()?);
            let through: Sample = routed.send(per_round).await?;
            let count = through.count();
            rounds.push(Round {
                router_cpu_us: (router.cpu_us()? - router_before) / count,
                engine_cpu_us: (engine.cpu_us()? - engine_before) / count,
                direct_p50_us: plain.p50_us(),
                routed_p50_us: through.p50_us(),
                origin_requests: images.requests() - asked_before,
            });
        }
        rows.push((workload, Row::of(&rounds)));
    }
    let urls = spelt(&router, port, &images, options.urls).await?;
    Ok(Measured { rows, bare, urls })
}

/// Sends requests with URLs that are all new, eight at a time.
async fn spelt(router: &Child, port: u16, images: &ImageServer, urls: u32) -> anyhow::Result<Urls> {
    let bodies = workload::spellings(images, urls);
    let count = u32::try_from(bodies.len()).map_or(f64::MAX, f64::from);
    let (asked_before, cpu_before) = (images.requests(), router.cpu_us()?);
    load::send_each(port, bodies, 8).await?;
    Ok(Urls {
        origin_requests: images.requests() - asked_before,
        router_cpu_us: (router.cpu_us()? - cpu_before) / count,
    })
}

struct Round {
    router_cpu_us: f64,
    engine_cpu_us: f64,
    direct_p50_us: f64,
    routed_p50_us: f64,
    origin_requests: u64,
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
            origin_requests: rounds.iter().map(|round| round.origin_requests).sum(),
        }
    }
}
