//! Prompts that tell whether what is promised is what the engine finds, and streams that stay to be counted.

use futures::StreamExt;
use serde_json::{Value, json};

use crate::chat::{Outcome, post};
use crate::images::Picture;
use crate::processes::Cluster;

/// A prompt unlike any of another set or number from its first own block on; two of three with an image.
pub(crate) fn prompt(set: u64, number: u16) -> Value {
    let text = format!("Set {set} has number {number}. ") + &"What is to be seen here, and where? ".repeat(6);
    let mut parts = vec![json!({"type": "text", "text": text})];
    if !number.is_multiple_of(3) {
        let seed = u8::try_from((set * 31 + u64::from(number)) % 256).unwrap();
        let picture = Picture { width: 112, height: 84, seed };
        parts.push(json!({"type": "image_url", "image_url": {"url": picture.data_uri()}}));
        parts.push(json!({"type": "text", "text": "Once more: what is it, and why is it there at all?"}));
    }
    json!({
        "model": "tiny-vl", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": parts}],
    })
}

/// The worker that a prompt is warmed on.
pub(crate) fn worker_of(cluster: &Cluster, number: u16) -> String {
    format!("w{}", number % cluster.shape.workers)
}

/// Has each worker cache two prompts of a set, through the frontends in turn.
pub(crate) async fn warm(cluster: &Cluster, set: u64) {
    for number in numbers(cluster) {
        let worker = worker_of(cluster, number);
        ask(cluster, (set, number), Some(&worker)).await;
    }
}

/// Sends the prompts of a set once more, to whom the frontends choose.
pub(crate) async fn verify(cluster: &Cluster, set: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for number in numbers(cluster) {
        outcomes.push(ask(cluster, (set, number), None).await);
    }
    outcomes
}

/// Numbers of a set's prompts.
pub(crate) fn numbers(cluster: &Cluster) -> std::ops::Range<u16> {
    0..cluster.shape.workers * 2
}

async fn ask(cluster: &Cluster, (set, number): (u64, u16), worker: Option<&str>) -> Outcome {
    // Not the frontend that warmed it: what it did not dispatch itself it must know from the index.
    let frontend = (usize::from(number) + usize::from(worker.is_none())) % cluster.frontends.len();
    let url = &cluster.frontends[frontend];
    let answered = post(&cluster.http, url, &prompt(set, number), worker).await;
    answered
        .unwrap_or_else(|failure| panic!("{url}, number {number} of set {set}: {failure}\n{}", cluster.log()))
}

/// Answers on their way, whose number the test knows.
pub(crate) struct Held(Vec<futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>>);

/// As [`hold`], on one worker.
pub(crate) async fn hold_at(cluster: &Cluster, set: u64, worker: &str) -> Held {
    let mut all = numbers(cluster).filter(|number| worker_of(cluster, *number) == worker);
    let number = all.next().unwrap();
    hold_these(cluster, set, number..number + 1).await
}

/// Starts one long answer on each worker, through the frontends in turn, and waits for its first bytes.
pub(crate) async fn hold(cluster: &Cluster, set: u64) -> Held {
    hold_these(cluster, set, 0..cluster.shape.workers).await
}

async fn hold_these(cluster: &Cluster, set: u64, numbers: std::ops::Range<u16>) -> Held {
    let mut streams = Vec::new();
    for number in numbers {
        let mut body = prompt(set, number);
        (body["stream"], body["max_tokens"], body["ignore_eos"]) = (json!(true), json!(20_000), json!(true));
        let frontend = &cluster.frontends[usize::from(number) % cluster.frontends.len()];
        let request = cluster.http.post(format!("{frontend}/v1/chat/completions")).json(&body);
        let request = request.header("x-sightline-worker", worker_of(cluster, number));
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut stream = answer.bytes_stream().boxed();
        stream.next().await.unwrap().unwrap();
        streams.push(stream);
    }
    Held(streams)
}

impl Held {
    /// Waits for more of every answer; tells whether there is.
    pub(crate) async fn next(&mut self) -> bool {
        for stream in &mut self.0 {
            if !matches!(stream.next().await, Some(Ok(_))) {
                return false;
            }
        }
        true
    }

    /// Waits until every frontend counts on each worker what the engine itself counts, which is the one that is held.
    pub(crate) async fn counted(&self, cluster: &Cluster) {
        let end = tokio::time::Instant::now() + crate::up::DEADLINE;
        for (worker, _) in self.0.iter().enumerate() {
            let running = cluster.engine_figure(worker, "vllm:num_requests_running").await;
            assert_eq!(running, 1, "engine {worker} runs {running} requests");
        }
        for url in cluster.indexes.iter().take(cluster.frontends.len()) {
            loop {
                let load = cluster.get(&format!("{url}/admin/load")).await.unwrap();
                let holders = load["holders"].as_array().unwrap();
                if holders.len() == self.0.len()
                    && holders.iter().all(|holder| holder["active_requests"] == 1)
                {
                    break;
                }
                assert!(tokio::time::Instant::now() < end, "{url} counts {load:#}");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}
