//! Frontends, agents and an indexer as processes, on a real nats-server and etcd.

use std::time::Duration;

use adapter_nats::NatsBus;
use ports::Bus;
use ports::bus::{Link, Message};
use serde_json::{Value, json};

use crate::images::Picture;
use crate::processes::Cluster;
use crate::up::DEADLINE;

const PREFIXES: u16 = 40;
const WORKERS: u16 = 3;

/// A prompt unlike any other from its first own block on; two of three with an image.
fn prompt(number: u16) -> Value {
    let text = format!("Number {number} of many. ") + &"What is to be seen here, and where? ".repeat(6);
    let mut parts = vec![json!({"type": "text", "text": text})];
    if !number.is_multiple_of(3) {
        let picture = Picture { width: 112, height: 84, seed: u8::try_from(number % 256).unwrap() };
        parts.insert(0, json!({"type": "image_url", "image_url": {"url": picture.data_uri()}}));
    }
    json!({
        "model": "tiny-vl", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": parts}],
    })
}

/// Sends a chat, to a worker where one is named; returns (worker, promised, cached).
async fn chat(
    cluster: &Cluster,
    frontend: usize,
    body: &Value,
    worker: Option<&str>,
) -> (String, Option<u64>, u64) {
    let request =
        cluster.http.post(format!("{}/v1/chat/completions", cluster.frontends[frontend])).json(body);
    let request = match worker {
        Some(worker) => request.header("x-sightline-worker", worker),
        None => request,
    };
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let header = |name: &str| Some(headers.get(name)?.to_str().unwrap().to_owned());
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{status}: {text}\n{}", cluster.log());
    let usage = serde_json::from_str::<Value>(&text).unwrap()["usage"].clone();
    (
        header("x-sightline-worker").unwrap_or_default(),
        header("x-sightline-cached-tokens").map(|tokens| tokens.parse().unwrap()),
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
    )
}

/// What a frontend would do with a prompt: the worker, and the tokens it would find cached there.
async fn explained(cluster: &Cluster, frontend: usize, body: &Value) -> (String, u64) {
    let url = format!("{}/v1/explain", cluster.frontends[frontend]);
    let answer: Value = cluster.http.post(url).json(body).send().await.unwrap().json().await.unwrap();
    let cached = answer["predicted"]["cached_tokens"].as_u64();
    (answer["worker"].as_str().unwrap_or_default().to_owned(), cached.unwrap_or_default())
}

fn worker_of(number: u16) -> String {
    format!("w{}", number % WORKERS)
}

/// Warms each prompt once, on a worker of its own, through the frontends in turn.
async fn warm(cluster: &Cluster, prompts: std::ops::Range<u16>) {
    for number in prompts {
        chat(cluster, usize::from(number / 2 % 2), &prompt(number), Some(&worker_of(number))).await;
    }
    cluster.settled().await;
    cluster.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frontends_agree_on_every_warmed_prefix_and_find_what_they_promise() {
    let mut cluster = Cluster::start().await;
    warm(&cluster, 0..PREFIXES).await;
    let mut agreed = 0;
    for number in 0..PREFIXES {
        let one = explained(&cluster, 0, &prompt(number)).await;
        let two = explained(&cluster, 1, &prompt(number)).await;
        agreed += u16::from(one == two && one.0 == worker_of(number) && one.1 > 0);
    }
    assert_eq!(agreed, PREFIXES, "{}", cluster.log());
    for number in 0..PREFIXES {
        let (worker, promised, cached) = chat(&cluster, usize::from(number % 2), &prompt(number), None).await;
        assert_eq!((worker, promised), (worker_of(number), Some(cached)), "prompt {number}");
    }
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
    for process in cluster.replicas.iter_mut().chain(&mut cluster.agents) {
        let status = process.terminate().await;
        assert!(status.success(), "{status}: {process:?}");
    }
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}

/// Asks indexers over NATS.
async fn ask_service(bus: &NatsBus, subject: &str, question: &Value) -> Value {
    let payload = question.to_string().into();
    let message = Message { subject: subject.to_owned(), payload, ..Message::default() };
    let answer = bus.request(message, DEADLINE).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

/// Spells the question for a prompt's tokens as the engine has them, an image where its placeholders stand.
async fn question(cluster: &Cluster, body: &Value) -> Value {
    let url = format!("{}/tokenize", cluster.engine_urls[0]);
    let tokens: Value = cluster.http.post(url).json(body).send().await.unwrap().json().await.unwrap();
    let url = format!("{}/v1/explain", cluster.frontends[0]);
    let explained: Value = cluster.http.post(url).json(body).send().await.unwrap().json().await.unwrap();
    let ids = tokens["tokens"].as_array().unwrap();
    let place = |item: &Value| {
        let length = usize::try_from(item["tokens"].as_u64().unwrap()).unwrap();
        let offset = ids.windows(length).position(|run| run.iter().all(|id| *id == run[0])).unwrap();
        json!({"media_id": item["media_id"], "offset": offset, "length": length})
    };
    let media: Vec<Value> = explained["media"].as_array().unwrap().iter().map(place).collect();
    json!({"model": "tiny-vl", "token_ids": ids, "media": media})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_indexer_answers_over_http_and_as_a_nats_service() {
    let cluster = Cluster::start().await;
    warm(&cluster, 0..6).await;
    let servers = vec![cluster.nats_url.clone()];
    let bus = NatsBus::connect(&adapter_nats::Config { servers, ..Default::default() }).await.unwrap();
    bus.link().wait_for(|link| *link == Link::Up).await.unwrap();
    let info = ask_service(&bus, "$SRV.INFO.sightline-indexer", &Value::Null).await;
    let subject = info["endpoints"][0]["subject"].as_str().unwrap();
    for number in 0..6 {
        let question = question(&cluster, &prompt(number)).await;
        let whole_blocks = question["token_ids"].as_array().unwrap().len() / 16 * 16;
        let url = format!("{}/query", cluster.indexes[2]);
        let over_http: Value =
            cluster.http.post(url).json(&question).send().await.unwrap().json().await.unwrap();
        assert_eq!(over_http, ask_service(&bus, subject, &question).await);
        assert_eq!(over_http[worker_of(number)]["matched_tokens"], whole_blocks, "{over_http}");
        assert_eq!(over_http[worker_of(number)]["ranks"]["0"], whole_blocks);
        for other in (0..WORKERS).map(worker_of).filter(|worker| *worker != worker_of(number)) {
            assert!(over_http[&other]["matched_tokens"].as_u64().unwrap() < whole_blocks as u64);
        }
    }
    let url = format!("{}/query", cluster.indexes[2]);
    let unknown = json!({"model": "none", "token_ids": []});
    assert_eq!(cluster.http.post(url).json(&unknown).send().await.unwrap().status(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_starts_without_a_registry_knows_the_workers_it_saw() {
    let mut cluster = Cluster::start().await;
    warm(&cluster, 0..6).await;
    // The view is kept once a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.etcd.kill();
    cluster.replicas[0].kill();
    cluster.replicas[0].start();
    cluster.settled().await;
    // Workers get credit again as soon as the directory has heard of their beats.
    for number in 0..6 {
        let end = tokio::time::Instant::now() + DEADLINE;
        while explained(&cluster, 0, &prompt(number)).await.0 != worker_of(number) {
            assert!(tokio::time::Instant::now() < end, "{}", cluster.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    for number in 0..6 {
        let (worker, promised, cached) = chat(&cluster, 0, &prompt(number), None).await;
        assert_eq!((worker, promised), (worker_of(number), Some(cached)), "{}", cluster.log());
        assert!(cached > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_restarted_while_idle_is_credited_with_nothing_it_had() {
    let mut cluster = Cluster::start().await;
    warm(&cluster, 0..9).await;
    cluster.engines[0].kill();
    cluster.engines[0].start();
    // Its agent finds another engine at the same place; before that, what it had is still believed in.
    let end = tokio::time::Instant::now() + DEADLINE;
    let blocks = async || {
        let shown = cluster.get(&format!("{}/admin/agents", cluster.agent_urls[0])).await;
        shown.and_then(|shown| shown["agents"][0]["blocks"].as_u64())
    };
    while blocks().await != Some(0) {
        assert!(tokio::time::Instant::now() < end, "{}", cluster.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.settled().await;
    for number in 0..9 {
        let (worker, promised, cached) = chat(&cluster, usize::from(number % 2), &prompt(number), None).await;
        assert_eq!(promised, Some(cached), "prompt {number}\n{}", cluster.log());
        assert!(worker == worker_of(number) || worker_of(number) == "w0", "prompt {number} went to {worker}");
    }
}
