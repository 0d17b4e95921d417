//! Sends one body again and again over one kept connection.

use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use tokio::time::Instant;

/// One client of one server.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    body: Bytes,
}

/// Latencies of some requests.
pub(crate) struct Sample(Vec<Duration>);

impl Client {
    pub(crate) fn new(port: u16, body: Bytes) -> anyhow::Result<Self> {
        let http =
            reqwest::Client::builder().no_proxy().tcp_nodelay(true).pool_max_idle_per_host(1).build()?;
        Ok(Self { http, url: format!("http://127.0.0.1:{port}/v1/chat/completions"), body })
    }

    /// Sends `count` requests, one after the other, and reads each answer to its end.
    pub(crate) async fn send(&self, count: usize) -> anyhow::Result<Sample> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            let request = self.http.post(&self.url).header("content-type", "application/json");
            let answer = request.body(self.body.clone()).send().await?;
            let status = answer.status();
            let text = answer.bytes().await?;
            ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&text));
            taken.push(began.elapsed());
        }
        taken.sort_unstable();
        Ok(Sample(taken))
    }
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
