//! An engine, a client, and a subscriber.

use std::path::PathBuf;
use std::time::Duration;

use engine_sim::{Config, Running, start};
use serde_json::{Value, json};
use zeromq::{Socket, SocketRecv, SubSocket, ZmqMessage};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A configuration without simulated time, on free ports, with events.
pub(crate) fn config() -> Config {
    Config {
        listen: ([127, 0, 0, 1], 0).into(),
        model: Some("tiny".to_owned()),
        model_dir: repository().join("fixtures/models/tiny-vl"),
        speed: 0.0,
        kv_events: Some("tcp://127.0.0.1:0".to_owned()),
        kv_events_bind: true,
        kv_replay: Some("tcp://127.0.0.1:0".to_owned()),
        ..Config::default()
    }
}

/// A running engine and the way to it.
pub(crate) struct Engine {
    pub(crate) running: Running,
    client: reqwest::Client,
}

impl Engine {
    pub(crate) async fn start(config: Config) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let running = start(config).await.unwrap();
        Self { running, client: reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.addr)
    }

    pub(crate) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        self.client.post(self.url(path)).header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        read(self.request(path, body)).await
    }

    pub(crate) async fn chat(&self, body: Value) -> (u16, Value) {
        self.post("/v1/chat/completions", &body).await
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.client.get(self.url(path)).send().await.unwrap().text().await.unwrap()
    }

    /// Returns the sum of a metric over its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await;
        let values =
            page.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// Polls a metric until it has a value.
    pub(crate) async fn metric_becomes(&self, name: &str, wanted: f64) {
        let poll = async {
            while (self.metric(name).await - wanted).abs() > 1e-9 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, poll)
            .await
            .unwrap_or_else(|_| panic!("{name} did not become {wanted}"));
    }
}

pub(crate) async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|_| json!(text)))
}

/// Splits a stream into its events; `[DONE]` becomes a string.
pub(crate) fn events(stream: &Value) -> Vec<Value> {
    let lines = stream.as_str().unwrap().split("\n\n").filter(|event| !event.is_empty());
    lines
        .map(|event| event.strip_prefix("data: ").unwrap())
        .map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data)))
        .collect()
}

pub(crate) fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

/// One published batch.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) topic: String,
    pub(crate) seq: u64,
    pub(crate) events: Vec<Value>,
    pub(crate) rank: u64,
    pub(crate) payload: Vec<u8>,
}

impl Batch {
    pub(crate) fn read(message: ZmqMessage) -> Self {
        let frames = message.into_vec();
        let [topic, seq, payload] = frames.as_slice() else { panic!("{} frames", frames.len()) };
        let (_, events, rank): (f64, Vec<Value>, u64) = rmp_serde::from_slice(payload).unwrap();
        let topic = String::from_utf8(topic.to_vec()).unwrap();
        Self {
            topic,
            seq: u64::from_be_bytes(seq.as_ref().try_into().unwrap()),
            events,
            rank,
            payload: payload.to_vec(),
        }
    }
}

/// A subscriber of one rank's events.
pub(crate) struct Feed(SubSocket);

impl Feed {
    /// Subscribes, and asks for things until the first batch shows that the subscription works.
    pub(crate) async fn of(engine: &Engine, rank: usize) -> Self {
        let mut socket = SubSocket::new();
        socket.connect(&engine.running.event_sources[rank].endpoint).await.unwrap();
        socket.subscribe("").await.unwrap();
        let mut feed = Self(socket);
        feed.warm_up(engine, rank).await;
        feed
    }

    /// Waits as the side that binds, which a connecting engine calls.
    pub(crate) async fn bound() -> (Self, String) {
        let mut socket = SubSocket::new();
        let endpoint = socket.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
        socket.subscribe("").await.unwrap();
        (Self(socket), endpoint)
    }

    pub(crate) async fn warm_up(&mut self, engine: &Engine, rank: usize) -> u64 {
        let tokens: Vec<u32> = (0..80).collect();
        for attempt in 0..200 {
            let salt = format!("warm-up {attempt}");
            let body = json!({"prompt": tokens, "max_tokens": 1, "cache_salt": salt});
            let request = engine.request("/v1/completions", &body).header("x-data-parallel-rank", rank);
            assert_eq!(read(request).await.0, 200);
            if let Ok(batch) = tokio::time::timeout(Duration::from_millis(100), self.next()).await {
                let mut last = batch.seq;
                while last < attempt {
                    last = self.next().await.seq;
                }
                return last;
            }
        }
        panic!("the subscription had no effect");
    }

    pub(crate) async fn next(&mut self) -> Batch {
        let message = tokio::time::timeout(DEADLINE, self.0.recv()).await.expect("no batch came").unwrap();
        Batch::read(message)
    }

    /// Returns the batches up to the one that a marker request causes, without it.
    pub(crate) async fn until_marker(&mut self, engine: &Engine) -> Vec<Batch> {
        let number = NEXT_MARKER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let tokens = vec![number + 2; 64];
        let body = json!({"prompt": tokens, "max_tokens": 1, "cache_salt": format!("marker {number}")});
        assert_eq!(engine.post("/v1/completions", &body).await.0, 200);
        let mut batches = Vec::new();
        loop {
            let batch = self.next().await;
            if batch.events.iter().any(|event| {
                event["token_ids"][0] == json!(number + 2) && event["token_ids"][1] == json!(number + 2)
            }) {
                return batches;
            }
            batches.push(batch);
        }
    }
}

static NEXT_MARKER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
