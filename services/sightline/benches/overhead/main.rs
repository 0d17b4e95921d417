//! What routing costs: CPU per request of the router's process, and latency added to an engine called directly.
//!
//! `cargo bench -p sightline --bench overhead [-- --requests 2000 --json] [-- --hand-over url] [--decode]` starts an
//! `engine-sim` at `--speed 0` and a `sightline up` attached to it, each a process of its own, and sends the same requests to
//! both, in turns; each round has all workloads, so that what is compared shares what else the machine does.
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
    let Measured { lanes, bare, urls } = runtime.block_on(run(&options))?;
    println!(
        "| workload | router CPU, µs a request | engine-sim CPU, µs | direct p50, µs | routed p50, µs | added p50, µs | origin requests |"
    );
    println!("|---|---|---|---|---|---|---|");
    for lane in &lanes {
        let (name, row) = (lane.workload.name, Row::of(&lane.rounds));
        println!(
            "| {name} | {:.0} ({:.0}–{:.0}) | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            row.router_cpu.median,
            row.router_cpu.least,
            row.router_cpu.most,
            row.engine_cpu.median,
            row.direct_p50.median,
            row.routed_p50.median,
            row.routed_p50.median - row.direct_p50.median,
            row.origin_requests,
        );
        if options.json {
            println!(
                "{{\"workload\":{name:?},\"router_cpu_us\":{:.1},\"direct_p50_us\":{:.1},\"routed_p50_us\":{:.1}}}",
                row.router_cpu.median, row.direct_p50.median, row.routed_p50.median
            );
        }
    }
    let (copy, hash) = bare;
    let times = times_the_floor(&lanes, copy + hash);
    println!(
        "\n{}: {:.2} ({:.2}–{:.2}) times its bytes proxied untouched, copied in {copy:.0} µs and hashed in {hash:.0} µs, of one round",
        workload::DATA_URI,
        times.median,
        times.least,
        times.most,
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

/// Compares an image in the request, round by round, with its bytes proxied untouched and `bare_us` more.
fn times_the_floor(lanes: &[Lane], bare_us: f64) -> Spread {
    let rounds = |name| {
        let lane = lanes.iter().find(move |lane| lane.workload.name == name);
        lane.into_iter().flat_map(|lane| &lane.rounds)
    };
    let pairs = rounds(workload::DATA_URI).zip(rounds(workload::UPLOAD));
    Spread::of(pairs.map(|(routed, proxied)| routed.router_cpu_us / (proxied.router_cpu_us + bare_us)))
}

/// All that was measured.
struct Measured {
    lanes: Vec<Lane>,
    /// A copy and a digest of the data URI's request, in microseconds.
    bare: (f64, f64),
    urls: Urls,
}

/// Requests with new URLs.
struct Urls {
    origin_requests: u64,
    router_cpu_us: f64,
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
    let (mut lanes, mut bare) = (Vec::new(), (0.0, 0.0));
    for workload in ALL {
        let ask = workload.ask(&images);
        if workload.name == workload::DATA_URI {
            bare = bare::copy_and_hash_us(&ask.body);
        }
        let (direct, routed) = (Client::new(engine_port, ask.clone())?, Client::new(port, ask)?);
        direct.send(20).await?;
        routed.send(100).await.with_context(|| format!("warming {} through the router", workload.name))?;
        lanes.push(Lane { workload, direct, routed, rounds: Vec::new() });
    }
    // All in each round: what is compared shares what else goes on.
    for _ in 0..options.rounds {
        for lane in &mut lanes {
            let requests = options.requests / lane.workload.weight / options.rounds;
            let round = lane.round(requests.max(20), (&router, &engine), &images).await?;
            lane.rounds.push(round);
        }
    }
    let urls = spelt(&router, port, &images, options.urls).await?;
    Ok(Measured { lanes, bare, urls })
}

/// One workload, sent to the engine and through the router in turns.
struct Lane {
    workload: Workload,
    direct: Client,
    routed: Client,
    rounds: Vec<Round>,
}

impl Lane {
    async fn round(
        &self,
        requests: usize,
        (router, engine): (&Child, &Child),
        images: &ImageServer,
    ) -> anyhow::Result<Round> {
        let plain: Sample = self.direct.send(requests).await?;
        let asked_before = images.requests();
        let (router_before, engine_before) = (router.cpu_us()?, engine.cpu_us()?);
        let through: Sample = self.routed.send(requests).await?;
        let count = through.count();
        Ok(Round {
            router_cpu_us: (router.cpu_us()? - router_before) / count,
            engine_cpu_us: (engine.cpu_us()? - engine_before) / count,
            direct_p50_us: plain.p50_us(),
            routed_p50_us: through.p50_us(),
            origin_requests: images.requests() - asked_before,
        })
    }
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

/// One line of the table: its rounds, each value by itself.
struct Row {
    router_cpu: Spread,
    engine_cpu: Spread,
    direct_p50: Spread,
    routed_p50: Spread,
    origin_requests: u64,
}

impl Row {
    fn of(rounds: &[Round]) -> Self {
        let spread = |of: fn(&Round) -> f64| Spread::of(rounds.iter().map(of));
        Self {
            router_cpu: spread(|round| round.router_cpu_us),
            engine_cpu: spread(|round| round.engine_cpu_us),
            direct_p50: spread(|round| round.direct_p50_us),
            routed_p50: spread(|round| round.routed_p50_us),
            origin_requests: rounds.iter().map(|round| round.origin_requests).sum(),
        }
    }
}

/// A value over the rounds.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        Self { least: at(0), median: at(values.len() / 2), most: at(values.len().saturating_sub(1)) }
    }
}
