//! Ours beside its peers; see the README.
#![allow(unsafe_code, reason = "reads clocks")]

mod dynamo;
mod index;
#[path = "../../../crates/block-index/benches/blocks/latency.rs"]
#[allow(dead_code, reason = "shared with another program")]
mod latency;
#[path = "../../../crates/block-index/benches/blocks/meter.rs"]
#[allow(dead_code, reason = "shared with another program")]
mod meter;
#[path = "../../../crates/block-index/benches/blocks/ours.rs"]
#[allow(dead_code, reason = "shared with another program")]
mod ours;
mod ours_beside;
mod report;
mod smg;
#[path = "../../../crates/block-index/benches/blocks/workload.rs"]
mod workload;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Parser;

use crate::index::{Index, Measured};
use crate::workload::Workload;

/// Measures the block index beside its peers.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Workload: chat, unshared, long, wide, mooncake or small.
    #[arg(long, default_value = "chat")]
    workload: String,
    /// Seed of the workload; repetition n uses seed + n.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repetitions.
    #[arg(long, default_value_t = 5)]
    reps: u64,
    /// Prints a JSON line per measurement and per summary.
    #[arg(long)]
    json: bool,
    /// Replays a trace in Mooncake's format.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Indexes to measure.
    #[arg(long, value_delimiter = ',', default_value = "ours,dynamo,smg")]
    only: Vec<String>,
    /// Measures one index in this process (used by the program itself).
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(name) = &args.child {
        let workload = load(&args)?;
        let index: Box<dyn Index> = match name.as_str() {
            "ours" => Box::new(ours_beside::Beside::new(&workload)),
            "dynamo" => Box::new(dynamo::Dynamo::new(&workload)),
            "smg" => Box::new(smg::Chain::new(&workload)),
            other => anyhow::bail!("no index {other}"),
        };
        println!("{}", serde_json::to_string(&index::measure(index, &workload))?);
        // Dynamo's thread would be joined by nobody.
        std::process::exit(0);
    }
    let mut repetitions = Vec::new();
    for rep in 0..args.reps {
        let mut measured = Vec::new();
        for name in &args.only {
            let one = child(&args, name, args.seed + rep)?;
            if args.json {
                println!("{}", serde_json::json!({"workload": args.workload, "rep": rep, "index": name, "measured": one}));
            }
            measured.push((name.clone(), one));
        }
        repetitions.push(measured);
    }
    report::print(&args.workload, &repetitions, args.json);
    Ok(())
}

fn load(args: &Args) -> anyhow::Result<Workload> {
    if let Some(path) = &args.trace {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        return Ok(Workload::of_trace(&workload::trace::read_trace(&text), args.seed));
    }
    workload::make(&args.workload, args.seed)
        .with_context(|| format!("no workload {}; there are {:?}", args.workload, workload::NAMES))
}

fn child(args: &Args, name: &str, seed: u64) -> anyhow::Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--workload", &args.workload, "--seed", &seed.to_string(), "--child", name]);
    if let Some(path) = &args.trace {
        command.arg("--trace").arg(path);
    }
    let output = command.output()?;
    anyhow::ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name}: no measurement"))
}
