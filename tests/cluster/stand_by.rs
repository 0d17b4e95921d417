//! Two agents of one engine: one speaks, the other stands by.

use std::time::Duration;

use tokio::time::Instant;

use crate::probes;
use crate::process::Process;
use crate::processes::{Cluster, Shape, answers};
use crate::up::DEADLINE;

const SHAPE: Shape = Shape {
    frontends: 2,
    indexers: 0,
    workers: 1,
    engine: "--speed 0",
    agent: "--drain-ms 0",
    frontend: [""; 2],
    otlp_port: None,
    proxied: None,
};
/// How long a card outlives its agent.
const LEASE: Duration = Duration::from_secs(10);
/// What a cluster says whose etcd was away.
const ETCD_LOST: [&str; 2] =
    ["workers are not watched, trying again", "the frontend's lease was lost, registering again"];

/// A cluster with another agent beside its only one, which is to be the speaker.
struct Pair {
    cluster: Cluster,
    other: Process,
    other_url: String,
}

impl Pair {
    async fn start() -> Self {
        let mut cluster = Cluster::shaped(SHAPE).await;
        let (other, other_url) = cluster.agent_of(0, "other agent");
        let pair = Self { cluster, other, other_url };
        pair.until("the other stands by", async || {
            pair.speaks().await == [Some(true), Some(false)] && pair.other.log().contains("Standby")
        })
        .await;
        pair
    }

    /// Tells whether the cluster's agent and the other one speak; none for one that does not answer.
    async fn speaks(&self) -> [Option<bool>; 2] {
        let mut speaks = [None; 2];
        for (speaks, url) in speaks.iter_mut().zip([&self.cluster.agent_urls[0], &self.other_url]) {
            let shown = self.cluster.get(&format!("{url}/admin/agents")).await;
            *speaks = shown.map(|shown| shown["agents"].as_array().is_some_and(|rows| !rows.is_empty()));
        }
        speaks
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so().await {
            let speaks = self.speaks().await;
            let log = self.cluster.log() + &self.other.log();
            assert!(Instant::now() < end, "{what}: not yet, they speak: {speaks:?}\n{log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Has the other agent be the cluster's.
    fn swap(&mut self) {
        std::mem::swap(&mut self.cluster.agents[0], &mut self.other);
        std::mem::swap(&mut self.cluster.agent_urls[0], &mut self.other_url);
    }

    /// What was cached before and what is cached now is found, as promised.
    async fn predictions(&self, (before, after): (u64, u64)) {
        self.cluster.settled().await;
        probes::warm(&self.cluster, after).await;
        self.cluster.settled().await;
        for set in [before, after] {
            for outcome in probes::verify(&self.cluster, set).await {
                let promised = (outcome.promised_prompt, outcome.promised_cached.unwrap_or_default());
                assert_eq!(promised, (outcome.prompt, outcome.cached), "{outcome:?}");
                assert!(outcome.cached > 0, "{outcome:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_takes_over_from_one_that_is_killed() {
    let mut pair = Pair::start().await;
    probes::warm(&pair.cluster, 0).await;
    pair.cluster.settled().await;
    pair.cluster.agents[0].kill();
    let killed = Instant::now();
    pair.until("the other speaks", async || pair.speaks().await == [None, Some(true)]).await;
    pair.cluster.until_ready(&pair.other_url).await;
    let took = killed.elapsed();
    println!("taken over {took:.1?} after the kill");
    assert!(took < LEASE + Duration::from_secs(2), "{took:?}");
    pair.swap();
    pair.predictions((0, 1)).await;
    pair.other.start();
    pair.until("the first stands by", async || pair.speaks().await == [Some(true), Some(false)]).await;
    pair.predictions((1, 2)).await;
    assert_eq!(pair.cluster.loud_lines(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_agents_that_speak_without_etcd_one_falls_silent_with_it() {
    let mut pair = Pair::start().await;
    probes::warm(&pair.cluster, 0).await;
    pair.cluster.settled().await;
    pair.cluster.etcd.kill();
    pair.cluster.agents[0].freeze();
    pair.cluster.until_ready(&pair.other_url).await;
    pair.cluster.agents[0].thaw();
    pair.until("both speak", async || pair.speaks().await == [Some(true); 2]).await;
    pair.cluster.etcd.start();
    answers(pair.cluster.etcd_port).await;
    let healed = Instant::now();
    let one_speaks = async || {
        let speaks = pair.speaks().await;
        speaks == [Some(true), Some(false)] || speaks == [Some(false), Some(true)]
    };
    pair.until("one speaks", one_speaks).await;
    let alone = healed.elapsed();
    pair.until("replicas agree", async || pair.cluster.disagreement().await.is_none()).await;
    println!("one speaks {alone:.1?} after etcd is back, replicas agree after {:.1?}", healed.elapsed());
    if pair.speaks().await == [Some(false), Some(true)] {
        pair.swap();
    }
    pair.predictions((0, 1)).await;
    assert_eq!(pair.speaks().await, [Some(true), Some(false)], "and it stays so");
    let loud = pair.cluster.loud_lines().into_iter();
    let unexplained: Vec<_> = loud.filter(|line| !ETCD_LOST.iter().any(|it| line.contains(it))).collect();
    assert_eq!(unexplained, Vec::<String>::new());
}
