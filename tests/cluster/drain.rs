//! Taking a worker out of service while it is used, and back.

use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::load::Load;
use crate::probes::{hold_at, prompt};
use crate::processes::{Cluster, Shape};
use crate::traces::{ROOT, named, spans_of, traced};
use crate::up::{DEADLINE, Up};

const SET: u64 = 5;

async fn workers(frontend: &str, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.arg("workers").args(args.split_whitespace()).args(["--frontend", frontend]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(DEADLINE, command.output()).await.unwrap().unwrap()
}

async fn said(frontend: &str, args: &str) -> String {
    let output = workers(frontend, args).await;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args}: {out}{err}");
    out.into_owned()
}

/// Waits until every frontend shows a worker in a state.
async fn shown(cluster: &Cluster, worker: &str, state: &str) {
    for url in cluster.indexes.iter().take(cluster.frontends.len()) {
        let end = tokio::time::Instant::now() + DEADLINE;
        while cluster.state_of(url, worker).await.as_deref() != Some(state) {
            assert!(tokio::time::Instant::now() < end, "{worker} is not {state} at {url}\n{}", cluster.log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

/// Waits until a frontend has heard that a worker is at work.
async fn busy(cluster: &Cluster, operators: &str, worker: &str) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !cluster.row_of(operators, worker).await.is_some_and(|row| row["active_requests"] != 0) {
        assert!(tokio::time::Instant::now() < end, "{worker} is idle at {operators}\n{}", cluster.log());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_finishes_what_it_has_and_gets_nothing_new() {
    let (collector, mut cluster) = traced(Shape::default()).await;
    let admin = cluster.indexes[0].clone();
    let mut held = hold_at(&cluster, SET, "w1").await;
    busy(&cluster, &admin, "w1").await;
    let load = Load::start(&cluster.frontends, &cluster.http, (2, 3));
    let trace = "4bf92f3577b34da6a3ce929d0e0e5000";
    let url = format!("{admin}/admin/workers/w1/drain");
    let told = cluster.http.post(&url).header("traceparent", format!("00-{trace}-{ROOT}-01")).send().await;
    let told: serde_json::Value = told.unwrap().json().await.unwrap();
    assert_eq!((&told["worker"], &told["draining"]), (&"w1".into(), &true.into()));
    assert!(told["active_requests"].as_u64().unwrap() >= 1, "{told}");
    shown(&cluster, "w1", "draining").await;
    // The agent takes part in the operator's trace.
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let spans = spans_of(&collector, trace, &["request", "command"], &cluster).await;
        let agents = spans.iter().find(|span| span.service == "sightline-agent");
        if let Some(span) = agents {
            let parent = spans.iter().find(|it| it.span_id == span.parent_span_id).unwrap();
            assert_eq!((&*parent.name, &*parent.service), ("command", "sightline-frontend"));
            assert_eq!(named(&spans, "request").parent_span_id, ROOT);
            break;
        }
        assert!(tokio::time::Instant::now() < end, "no span of the agent: {spans:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // What it has goes on; nothing new comes.
    let stuck = workers(&admin, "drain w1 --wait --deadline-s 1").await;
    assert!(!stuck.status.success());
    assert!(
        String::from_utf8_lossy(&stuck.stderr).contains("w1 is not idle yet: 1 request in flight"),
        "{stuck:?}"
    );
    assert!(held.next().await, "the answer that was on its way was cut off");
    // The agent's restart does not put it back.
    assert!(cluster.agents[1].terminate().await.success());
    cluster.agents[1].start();
    shown(&cluster, "w1", "draining").await;
    let table = said(&admin, "").await;
    assert!(table.lines().any(|line| line.starts_with("w1") && line.contains("draining")), "{table}");
    drop(held);
    let idle = said(&admin, "drain w1 --wait").await;
    assert!(idle.ends_with("w1 is idle\n"), "{idle}");
    assert_eq!(said(&admin, "resume w1").await, "w1 takes requests\n");
    shown(&cluster, "w1", "ready").await;
    let journal = load.stop().await;
    assert!(journal.failed.is_empty() && journal.answered > 0, "{journal:?}");
    // Others have no say, and others' names no worker.
    let unknown = cluster.http.post(format!("{admin}/admin/workers/w9/drain")).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    let page = cluster.http.post(&url).header("origin", "http://evil.example").send().await.unwrap();
    assert_eq!(page.status(), 403);
    assert_eq!(cluster.http.get(&url).send().await.unwrap().status(), 405);
    assert_eq!(cluster.state_of(&admin, "w1").await.as_deref(), Some("ready"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_one_process_are_drained_too() {
    let up = Up::start(&["--speed", "0"]).await;
    let frontend = &up.frontends[0];
    assert!(said(frontend, "drain w0 --wait").await.ends_with("w0 is idle\n"));
    for _ in 0..8 {
        let answer = crate::chat::post(&up.http, frontend, &prompt(SET, 1), None).await.unwrap();
        assert_ne!(answer.worker, "w0");
    }
    assert_eq!(said(frontend, "resume w0").await, "w0 takes requests\n");
    let json: serde_json::Value = serde_json::from_str(&said(frontend, "--json").await).unwrap();
    assert_eq!(json["workers"].as_array().unwrap().len(), 3);
}
