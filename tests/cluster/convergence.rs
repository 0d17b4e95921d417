//! When a cluster of processes is whole again: by sequences, digests and counts, not by time.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::processes::Cluster;
use crate::settle::published;
use crate::up::DEADLINE;

const LOOK: Duration = Duration::from_millis(10);

impl Cluster {
    /// Waits until every replica is ready and has what the agents have, and these what the engines published.
    pub(crate) async fn settled(&self) {
        let end = Instant::now() + DEADLINE;
        while let Some(difference) = self.difference().await {
            assert!(Instant::now() < end, "not settled: {difference}\n{}", self.log());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until no frontend counts anything outstanding, its own or another's.
    pub(crate) async fn idle(&self) {
        let end = Instant::now() + DEADLINE;
        while let Some(busy) = self.busy().await {
            assert!(Instant::now() < end, "not idle: {busy}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Names one thing that a frontend counts as outstanding.
    pub(crate) async fn busy(&self) -> Option<String> {
        for url in self.indexes.iter().take(self.frontends.len()) {
            let Some(load) = self.get(&format!("{url}/admin/load")).await else {
                return Some(format!("{url} does not answer"));
            };
            let fields = ["active_requests", "prefill_tokens", "media_tokens", "decode_blocks"];
            let holders = load["holders"].as_array().unwrap();
            let still = holders.iter().find(|holder| fields.iter().any(|field| holder[field] != 0));
            if let Some(still) = still {
                return Some(format!("{url} counts {still}"));
            }
        }
        None
    }

    /// Names one thing that keeps the replicas from agreeing, while requests may run: a worker that a frontend would not
    /// send to, a replica that is not ready or not live, a digest that is not its agent's.
    pub(crate) async fn disagreement(&self) -> Option<String> {
        let workers = usize::from(self.shape.workers);
        for (replica, url) in self.indexes.iter().enumerate() {
            let Some(index) = self.get(&format!("{url}/admin/index")).await else {
                return Some(format!("{url} does not answer"));
            };
            let holders = index["holders"].as_array().unwrap();
            let live = holders.iter().filter(|holder| holder["state"] == "live").count();
            if live != workers || holders.len() != workers || index["agreement"] != 1.0 {
                return Some(format!("{url} agrees on {} with {holders:?}", index["agreement"]));
            }
            if replica < self.frontends.len()
                && let Some(worker) = self.unready_worker(url).await
            {
                return Some(format!("{url} shows {worker}"));
            }
            let ready = self.get(&format!("{url}/health/ready")).await;
            if ready.as_ref().is_none_or(|ready| ready["status"] != "ready") {
                return Some(format!("{url} is {ready:?}"));
            }
        }
        None
    }

    /// Names one worker that a frontend does not see as ready.
    async fn unready_worker(&self, url: &str) -> Option<Value> {
        let shown = self.get(&format!("{url}/admin/workers")).await.unwrap_or_default();
        let workers = shown["workers"].as_array().cloned().unwrap_or_default();
        if workers.len() != usize::from(self.shape.workers) {
            return Some(shown);
        }
        workers.into_iter().find(|worker| worker["state"] != "ready")
    }

    /// Names one thing that is not settled; nothing is while requests run.
    pub(crate) async fn difference(&self) -> Option<String> {
        let mut agents = Vec::new();
        for url in &self.agent_urls {
            let Some(shown) = self.get(&format!("{url}/admin/agents")).await else {
                return Some(format!("{url} does not answer"));
            };
            agents.extend(shown["agents"].as_array().unwrap().clone());
        }
        if agents.len() != self.agents.len() || agents.iter().any(|agent| agent["phase"] != "ready") {
            return Some(format!("agents {agents:?}"));
        }
        for (engine, agent) in self.engine_urls.iter().zip(&agents) {
            let published = published(&self.http, engine).await;
            if agent["engine_seq"].as_u64().map_or(0, |last| last + 1) != published {
                return Some(format!("engine {engine} published {published}, agent {agent}"));
            }
        }
        for url in &self.indexes {
            let ready = self.get(&format!("{url}/health/ready")).await;
            if ready.as_ref().is_none_or(|ready| ready["status"] != "ready") {
                return Some(format!("{url} is {ready:?}"));
            }
            let Some(index) = self.get(&format!("{url}/admin/index")).await else {
                return Some(format!("{url} does not answer"));
            };
            for agent in &agents {
                let same = |holder: &&Value| holder["worker"] == agent["worker"];
                let holder = index["holders"].as_array().unwrap().iter().find(same);
                let fields = ["seq", "digest", "blocks"];
                if !holder.is_some_and(|holder| fields.iter().all(|field| holder[field] == agent[field])) {
                    return Some(format!("{url} has {holder:?}, agent {agent}"));
                }
            }
        }
        None
    }

    /// Reads a counter or gauge of an engine; the first line that begins with `name` counts.
    pub(crate) async fn engine_figure(&self, engine: usize, name: &str) -> u64 {
        let url = format!("{}/metrics", self.engine_urls[engine]);
        let text = self.http.get(url).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let (_, figure) = line.rsplit_once(' ').unwrap();
        figure.parse().unwrap()
    }
}
