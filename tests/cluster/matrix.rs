//! The fault matrix: one cluster of real processes under load, one fault after the other.
//!
//! `SIGHTLINE_FAULT_SECONDS` says how long each fault is held, 5 by default; `SIGHTLINE_FAULT` runs only the cases whose
//! names contain it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::chat::Outcome;
use crate::fault_cases::{CASES, Case, Fault};
use crate::load::Load;
use crate::probes;
use crate::processes::{Cluster, Shape};
use crate::up::DEADLINE;

/// Decides the conversations, and what happens to messages.
const SEED: u64 = 20_261_130;
const CLIENTS: usize = 8;
const SHAPE: Shape = Shape {
    frontends: 3,
    indexers: 0,
    workers: 6,
    engine: "--speed 20 --kv-blocks 16384",
    agent: "--drain-ms 0",
    frontend: [""; 2],
    otlp_port: None,
    proxied: Some(SEED),
};
/// How soon after it is healed everything has to be as if nothing had happened.
const HEALED_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_heals_within_five_seconds_and_costs_no_other_request() {
    let held_for = setting("SIGHTLINE_FAULT_SECONDS").map_or(5, |seconds| seconds.parse().unwrap());
    let only = setting("SIGHTLINE_FAULT").unwrap_or_default();
    let cluster = Cluster::shaped(SHAPE).await;
    let load = Load::start(&cluster.frontends, &cluster.http, (CLIENTS, SEED));
    let mut matrix = Matrix { cluster, load, marks: Vec::new(), wrong: Vec::new() };
    for (number, case) in (0_u64..).zip(&CASES).filter(|(_, case)| case.name.contains(&only)) {
        matrix.run(*case, number, Duration::from_secs(held_for)).await;
    }
    let Matrix { cluster, load, wrong, .. } = matrix;
    let failed = load.stop().await.failed;
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), cluster.log());
}

#[expect(clippy::disallowed_methods, reason = "tests have no configuration file")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

struct Matrix {
    cluster: Cluster,
    load: Load,
    /// Lines that each process had printed before the present case.
    marks: Vec<usize>,
    wrong: Vec<String>,
}

impl Matrix {
    async fn run(&mut self, case: Case, number: u64, held_for: Duration) {
        let (before, after) = (2 * number, 2 * number + 1);
        self.load.pause().await;
        probes::warm(&self.cluster, before).await;
        self.cluster.settled().await;
        self.cluster.idle().await;
        self.marks = self.cluster.processes().map(|process| process.loud_since(0).1).collect();
        drop(self.load.journal());
        if !case.idle {
            self.load.resume();
            tokio::time::sleep(held_for / 10).await;
        }
        let began = Instant::now();
        case.fault.begin(&mut self.cluster).await;
        tokio::time::sleep(held_for).await;
        case.fault.heal(&mut self.cluster).await;
        let lasted = began.elapsed();

        let healed = Instant::now();
        let last = until(&case, &self.cluster, Cluster::disagreement).await;
        let agreed = healed.elapsed();
        self.load.pause().await;
        drop(until(&case, &self.cluster, Cluster::busy).await);
        drop(until(&case, &self.cluster, Cluster::difference).await);
        let settled = healed.elapsed();
        self.predictions(&case, (before, after)).await;
        self.sums(after).await;
        let requests = self.judge(&case);
        println!(
            "{:42} lasted {lasted:6.2?}  {requests}  agreed after {agreed:4.2?}, settled {settled:4.2?}",
            case.name
        );
        if settled > HEALED_WITHIN {
            let why = format!("{}: settled only {settled:?} after it was healed, at last {last}", case.name);
            self.wrong.push(why);
        }
    }

    /// What was cached before the fault and what is cached after it is found, and found where it was promised.
    async fn predictions(&mut self, case: &Case, (before, after): (u64, u64)) {
        if case.idle {
            self.nothing_is_credited(case, before).await;
        }
        let known = probes::verify(&self.cluster, before).await;
        let forgotten = case.fault.forgets();
        let kept =
            |(number, _): &(u16, Outcome)| Some(probes::worker_of(&self.cluster, *number)) != forgotten;
        let numbered: Vec<_> = probes::numbers(&self.cluster).zip(known).collect();
        let cold: Vec<_> =
            numbered.iter().filter(|it| kept(it)).filter(|(_, outcome)| outcome.cached == 0).collect();
        if !cold.is_empty() {
            self.wrong.push(format!("{}: cached before and not found after: {cold:#?}", case.name));
        }
        probes::warm(&self.cluster, after).await;
        self.cluster.settled().await;
        let fresh = probes::verify(&self.cluster, after).await;
        for outcome in numbered.iter().map(|(_, outcome)| outcome).chain(&fresh) {
            let promised = (outcome.promised_prompt, outcome.promised_cached.unwrap_or_default());
            if promised != (outcome.prompt, outcome.cached) {
                self.wrong.push(format!("{}: not as promised: {outcome:?}", case.name));
            }
        }
        if fresh.iter().any(|outcome| outcome.cached == 0) {
            self.wrong.push(format!("{}: cached after and not found: {fresh:#?}", case.name));
        }
    }

    /// No frontend credits the engine that began anew with anything.
    async fn nothing_is_credited(&mut self, case: &Case, before: u64) {
        let forgotten = case.fault.forgets().unwrap();
        for (number, url) in probes::numbers(&self.cluster).zip(self.cluster.frontends.iter().cycle()) {
            let asked =
                self.cluster.http.post(format!("{url}/v1/explain")).json(&probes::prompt(before, number));
            let explained: Value = asked.send().await.unwrap().json().await.unwrap();
            let candidates = explained["candidates"].as_array().unwrap();
            let candidate = candidates.iter().find(|it| it["worker"] == forgotten.as_str()).unwrap();
            if candidate["cached_blocks"] != 0 {
                self.wrong.push(format!("{}: {url} credits {candidate}", case.name));
            }
        }
    }

    /// Every frontend counts what is really in flight, and nothing once nothing is.
    async fn sums(&self, set: u64) {
        let held = probes::hold(&self.cluster, set).await;
        held.counted(&self.cluster).await;
        drop(held);
        self.cluster.idle().await;
    }

    /// Finds failed requests and loud lines that the fault does not explain.
    fn judge(&mut self, case: &Case) -> String {
        let journal = self.load.journal();
        let (excused, failed): (Vec<_>, Vec<_>) =
            journal.failed.into_iter().partition(|it| case.fault.excuses(it));
        if !failed.is_empty() {
            self.wrong.push(format!("{}: failed requests: {failed:#?}", case.name));
        }
        if !case.idle && journal.answered < 20 {
            self.wrong.push(format!("{}: only {} requests were answered", case.name, journal.answered));
        }
        for (process, mark) in self.cluster.processes().zip(&self.marks) {
            let (loud, _) = process.loud_since(*mark);
            let unexplained = |line: &String| !case.explains.iter().any(|message| line.contains(message));
            let unexplained: Vec<_> = loud.into_iter().filter(unexplained).collect();
            if !unexplained.is_empty() {
                self.wrong.push(format!("{}: {unexplained:#?}", case.name));
            }
        }
        let mistreated = self.cluster.proxies.iter().map(|proxy| proxy.tally().dropped).sum::<u64>();
        if matches!(case.fault, Fault::BusDisordered(_)) && mistreated < 100 {
            self.wrong.push(format!("{}: only {mistreated} messages were lost", case.name));
        }
        let (answered, elsewhere) = (journal.answered, journal.elsewhere);
        format!("{answered:5} answered, {elsewhere:4} sent elsewhere, {} in flight lost", excused.len())
    }
}

/// Waits until nothing is named any more; returns what was named last.
async fn until(case: &Case, cluster: &Cluster, named: impl AsyncFn(&Cluster) -> Option<String>) -> String {
    let end = Instant::now() + DEADLINE;
    let mut last = String::new();
    while let Some(why) = named(cluster).await {
        assert!(Instant::now() < end, "{}: still {why}\n{}", case.name, cluster.log());
        last = why;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    last
}
