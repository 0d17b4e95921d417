//! Waiting until every replica has what the engines published: sequence and digest, not time.

use std::time::Duration;

use serde_json::Value;

use crate::up::{DEADLINE, Up};

/// Waits until each agent has consumed everything its engine published and each frontend's replicas equal the agents'.
pub(crate) async fn settled(up: &Up) {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let difference = difference(up).await;
        let Some(difference) = difference else { return };
        assert!(tokio::time::Instant::now() < end, "not settled: {difference}\n{}", up.log());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until no frontend counts a request in flight.
pub(crate) async fn idle(up: &Up) {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let mut busy = Vec::new();
        for frontend in &up.frontends {
            let load = up.get(&format!("{frontend}/admin/load")).await;
            for holder in load["holders"].as_array().unwrap() {
                let fields = ["active_requests", "prefill_tokens", "media_tokens", "decode_blocks"];
                if fields.iter().any(|field| holder[field].as_u64() != Some(0)) {
                    busy.push(holder.clone());
                }
            }
        }
        if busy.is_empty() {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "load remains: {busy:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Names one thing that is not settled.
async fn difference(up: &Up) -> Option<String> {
    let agents = up.get(&format!("{}/admin/agents", up.agents)).await;
    let agents = agents["agents"].as_array().unwrap();
    if agents.len() != up.engines.len() {
        return Some(format!("{} agents", agents.len()));
    }
    for (engine, agent) in up.engines.iter().zip(agents) {
        let published = published(&up.http, engine).await;
        if agent["engine_seq"].as_u64().map_or(0, |last| last + 1) != published {
            return Some(format!("engine {engine} published {published}, agent {agent}"));
        }
    }
    for frontend in &up.frontends {
        let index = up.get(&format!("{frontend}/admin/index")).await;
        for agent in agents {
            let same =
                |holder: &&Value| holder["worker"] == agent["worker"] && holder["rank"] == agent["rank"];
            let replica = index["holders"].as_array().unwrap().iter().find(same);
            let fields = ["seq", "digest", "blocks"];
            if !replica.is_some_and(|replica| fields.iter().all(|field| replica[field] == agent[field])) {
                return Some(format!("{frontend} has {replica:?}, agent {agent}"));
            }
        }
    }
    None
}

/// Counts the event batches an engine has published; no agent has as many as one that does not answer.
pub(crate) async fn published(http: &reqwest::Client, engine: &str) -> u64 {
    let Ok(answer) = http.get(format!("{engine}/metrics")).send().await else { return u64::MAX };
    let text = answer.text().await.unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("engine_sim_event_batches_total"));
    let number = line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0");
    number.parse().unwrap()
}
