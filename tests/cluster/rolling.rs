//! Everything is replaced, one process after the other, while requests run.

use std::time::Duration;

use tokio::time::Instant;

use crate::load::Load;
use crate::processes::{Cluster, Shape};
use crate::up::DEADLINE;

const SEED: u64 = 20_261_131;
const SHAPE: Shape = Shape {
    frontends: 3,
    indexers: 1,
    workers: 3,
    engine: "--speed 20 --kv-blocks 8192",
    agent: "--drain-ms 20000",
    frontend: [""; 2],
    otlp_port: None,
    proxied: None,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_is_replaced_in_turn_and_no_request_fails() {
    let mut cluster = Cluster::shaped(SHAPE).await;
    let load = Load::start(&cluster.frontends, &cluster.http, (6, SEED));
    for index in 0..cluster.replicas.len() {
        let status = cluster.replicas[index].terminate().await;
        assert!(status.success(), "{status}\n{}", cluster.log());
        cluster.replicas[index].start();
        cluster.ready(index).await;
    }
    for worker in 0..cluster.agents.len() {
        // An agent that is asked to end first waits until its engine has nothing to do, and nobody sends it more.
        let status = cluster.agents[worker].terminate().await;
        assert!(status.success(), "{status}\n{}", cluster.log());
        let running = cluster.engine_figure(worker, "vllm:num_requests_running").await;
        assert_eq!(running, 0, "engine {worker} was left with requests");
        let status = cluster.engines[worker].terminate().await;
        assert!(status.success(), "{status}\n{}", cluster.log());
        cluster.engines[worker].start();
        cluster.engine_answers(worker).await;
        cluster.agents[worker].start();
        cluster.agent_ready(worker).await;
        agreed(&cluster).await;
    }
    let journal = load.stop().await;
    println!(
        "{} requests answered, {} times another frontend was taken",
        journal.answered, journal.elsewhere
    );
    assert!(journal.failed.is_empty(), "{:#?}\n{}", journal.failed, cluster.log());
    assert!(journal.answered > 200, "only {} requests", journal.answered);
    cluster.settled().await;
    cluster.idle().await;
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}

async fn agreed(cluster: &Cluster) {
    let end = Instant::now() + DEADLINE;
    while let Some(why) = cluster.disagreement().await {
        assert!(Instant::now() < end, "{why}\n{}", cluster.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
