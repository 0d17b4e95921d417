//! Sends one body again and again over one kept connection, or many bodies once over several.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::workload::Ask;

/// One client of one server.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    ask: Ask,
}

/// Latencies of some requests.
pub(crate) struct Sample(Vec<Duration>);

impl Client {
    pub(crate) fn new(port: u16, ask: Ask) -> anyhow::Result<Self> {
        let http =
            reqwest::Client::builder().no_proxy().tcp_nodelay(true).pool_max_idle_per_host(1).build()?;
        Ok(Self { http, url: format!("http://127.0.0.1:{port}{}", ask.path), ask })
    }

    /// Sends `count` requests, one after the other, and reads each answer to its end.
    pub(crate) async fn send(&self, count: usize) -> anyhow::Result<Sample> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            self.post(self.ask.body.clone()).await?;
            taken.push(began.elapsed());
        }
        taken.sort_unstable();
        Ok(Sample(taken))
    }

    async fn post(&self, body: Bytes) -> anyhow::Result<()> {
        let request = self.http.post(&self.url).header("content-type", self.ask.content_type);
        let answer = request.body(body).send().await?;
        let status = answer.status();
        let text = answer.bytes().await?;
        ensure!(status == self.ask.status, "{status}: {}", String::from_utf8_lossy(&text));
        Ok(())
    }
}

/// Sends each body once to a port's chat completions, `width` at a time.
pub(crate) async fn send_each(port: u16, bodies: Vec<Bytes>, width: usize) -> anyhow::Result<()> {
    let (bodies, next) = (Arc::new(bodies), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..width {
        let (bodies, next) = (Arc::clone(&bodies), Arc::clone(&next));
        let client = Client::new(port, Ask::chat(Bytes::new()))?;
        clients.spawn(async move {
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                client.post(body.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = clients.join_next().await {
        sent??;
    }
    Ok(())
}

impl Sample {
    /// Number of requests.
    pub(crate) fn count(&self) -> f64 {
        u32::try_from(self.0.len()).map_or(f64::MAX, f64::from)
    }

    /// Median latency, in microseconds.
    pub(crate) fn p50_us(&self) -> f64 {
        self.0.get(self.0.len() / 2).map_or(0.0, |taken| taken.as_secs_f64() * 1e6)
    }
}
