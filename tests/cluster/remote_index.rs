//! A frontend without an index of its own, beside one with: what indexers answer, and what becomes of requests when
//! one or all of them are killed.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::chat::post;
use crate::load::Load;
use crate::probes::{numbers, prompt, warm, worker_of};
use crate::processes::{Cluster, Shape};
use crate::traces::{chat, named, spans_of, traced};
use crate::up::DEADLINE;

/// The frontend that asks indexers; the other one keeps a replica.
const REMOTE: usize = 1;
const SET: u64 = 77;
const SAMPLES: usize = 150;

/// What the frontend would do with a prompt, as soon as an indexer answers in time.
async fn explained(cluster: &Cluster, number: u16) -> Value {
    let end = Instant::now() + DEADLINE;
    let url = format!("{}/v1/explain", cluster.frontends[REMOTE]);
    loop {
        let request = cluster.http.post(&url).json(&prompt(SET, number));
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        if answer["fallback"].is_null() {
            return answer;
        }
        assert_eq!(answer["fallback"], "index-remote", "{answer}");
        assert!(Instant::now() < end, "no indexer answers: {answer}\n{}", cluster.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A metric of the frontend without an index, of any reason or of one.
async fn figure(cluster: &Cluster, name: &str) -> f64 {
    let url = format!("{}/metrics", cluster.indexes[REMOTE]);
    let text = cluster.http.get(url).send().await.unwrap().text().await.unwrap();
    let of_name = text.lines().filter(|line| line.starts_with(name));
    of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Milliseconds that a decision takes at both frontends: (p50, p99) of each.
async fn decision_times(cluster: &Cluster) -> [(f64, f64); 2] {
    let mut times = [Vec::new(), Vec::new()];
    for sample in 0..SAMPLES {
        let number = u16::try_from(sample).unwrap() % numbers(cluster).end;
        for (frontend, times) in times.iter_mut().enumerate() {
            let url = format!("{}/v1/explain", cluster.frontends[frontend]);
            let began = Instant::now();
            let request = cluster.http.post(url).json(&prompt(SET, number));
            assert!(request.send().await.unwrap().bytes().await.is_ok());
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[SAMPLES / 2], times[SAMPLES * 99 / 100])
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexers_answer_a_frontend_that_keeps_no_index() {
    let shape = Shape { indexers: 2, frontend: ["", "--index remote"], ..Shape::default() };
    let (collector, cluster) = traced(shape).await;
    warm(&cluster, SET).await;
    cluster.settled().await;
    for number in numbers(&cluster) {
        let told = explained(&cluster, number).await;
        let worker = worker_of(&cluster, number);
        assert_eq!(told["worker"], *worker, "{told}");
        let answer = post(&cluster.http, &cluster.frontends[REMOTE], &prompt(SET, number), None).await;
        let answer = answer.unwrap_or_else(|failure| panic!("{failure}\n{}", cluster.log()));
        // An answer that came late promises nothing; one that came in time is exact.
        if let Some(promised) = answer.promised_cached {
            assert_eq!((answer.worker, promised), (worker, answer.cached));
            assert_eq!(told["predicted"]["cached_tokens"], answer.cached);
        }
    }
    assert!(figure(&cluster, "sightline_index_queries_total{reason=\"answered\"}").await > 0.0);
    let index = cluster.get(&format!("{}/admin/index", cluster.indexes[REMOTE])).await.unwrap();
    assert!(index["blocks"].is_null(), "it keeps an index: {index}");

    let mut trace = 0x5000_u32;
    loop {
        // Until a lookup is answered in time.
        trace += 1;
        let id = format!("4bf92f3577b34da6a3ce929d{trace:08x}");
        chat(&cluster, REMOTE, &id, &prompt(SET, 0)).await;
        let spans = spans_of(&collector, &id, &["request", "lookup", "generate", "proxy"], &cluster).await;
        if named(&spans, "proxy").attributes.contains_key("predicted_cached_tokens") {
            let lookup = named(&spans, "lookup");
            assert_eq!(lookup.parent_span_id, named(&spans, "request").span_id);
            let of_indexers: Vec<_> = spans_of(&collector, &id, &["match"], &cluster).await;
            let of_indexers = of_indexers.iter().filter(|span| span.service == "sightline-indexer");
            assert!(of_indexers.clone().count() > 0, "no indexer takes part in the trace");
            assert!(of_indexers.clone().all(|span| span.parent_span_id == lookup.span_id));
            break;
        }
    }
    let [local, remote] = decision_times(&cluster).await;
    let (sum, count) = (
        figure(&cluster, "sightline_index_query_seconds_sum").await,
        figure(&cluster, "sightline_index_query_seconds_count").await,
    );
    eprintln!(
        "decision with its HTTP request, ms: local p50 {:.2} p99 {:.2}, remote p50 {:.2} p99 {:.2}; question to indexers {:.2} on average of {count}",
        local.0,
        local.1,
        remote.0,
        remote.1,
        sum / count * 1000.0
    );
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_indexers_cost_credit_and_no_request() {
    let shape = Shape { indexers: 2, frontend: ["", "--index remote"], ..Shape::default() };
    let mut cluster = Cluster::shaped(shape).await;
    warm(&cluster, SET).await;
    cluster.settled().await;
    let load = Load::start(&cluster.frontends[REMOTE..], &cluster.http, (3, 9));
    let answered = async |count: u64| {
        let (end, mut seen) = (Instant::now() + DEADLINE, 0);
        while seen < count {
            let journal = load.journal();
            assert!(journal.failed.is_empty(), "{:?}", journal.failed);
            seen += journal.answered;
            assert!(Instant::now() < end, "{seen} answers");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    answered(20).await;
    let first = cluster.frontends.len();
    cluster.replicas[first].kill();
    answered(20).await;
    // The other one still answers.
    explained(&cluster, 0).await;
    cluster.replicas[first + 1].kill();
    let unserved = "sightline_index_queries_total{reason=\"unserved\"}";
    let before = figure(&cluster, unserved).await;
    answered(20).await;
    assert!(figure(&cluster, unserved).await > before, "nothing was routed without an indexer");
    assert!(figure(&cluster, "sightline_fallbacks_total{reason=\"index-remote\"}").await > 0.0);
    for indexer in [first, first + 1] {
        cluster.replicas[indexer].start();
        cluster.ready(indexer).await;
    }
    let journal = load.stop().await;
    assert!(journal.failed.is_empty(), "{:?}", journal.failed);
    cluster.idle().await;
    // What was cached before counts again: an indexer answers only once it has it all.
    for number in numbers(&cluster) {
        let told = explained(&cluster, number).await;
        assert_eq!(told["worker"], *worker_of(&cluster, number), "{told}");
    }
}
