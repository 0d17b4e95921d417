//! What operators see of agents: health, metrics, and how far each feed is.

use std::fmt::Write;
use std::sync::Arc;

use adapter_http::{Bounds, Listener};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use hyper_util::service::TowerToHyperService;
use identity::WorkerId;
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::media_dir::MediaDir;
use crate::speaker::{Followed, Phase};

/// What operators may see of one agent; outlives it.
#[derive(Clone, Debug)]
pub struct AgentView {
    pub(crate) worker: WorkerId,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) followed: watch::Receiver<Vec<Followed>>,
    /// Where its engine reads media as files.
    pub(crate) media_dir: Option<Arc<MediaDir>>,
}

/// How far one feed is, as `/admin/agents` shows it.
#[derive(Debug, Serialize)]
struct Row {
    worker: String,
    rank: u16,
    phase: String,
    incarnation: Option<String>,
    engine_healthy: bool,
    engine_seq: Option<u64>,
    seq: u64,
    digest: String,
    blocks: u64,
    coverage: f64,
}

/// Serves `/health/live`, `/health/ready`, `/metrics` and `/admin/agents` until `stop` is cancelled.
pub async fn serve(listener: Listener, agents: Vec<AgentView>, stop: CancellationToken) {
    let router = Router::new()
        .route("/health/live", get(async || StatusCode::OK))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/agents", get(show))
        .with_state(Arc::new(agents));
    adapter_http::serve(listener, TowerToHyperService::new(router), Bounds::default(), stop).await;
}

async fn ready(State(agents): State<Arc<Vec<AgentView>>>) -> StatusCode {
    let ready = agents.iter().all(|agent| *agent.phase.borrow() == Phase::Ready);
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn show(State(agents): State<Arc<Vec<AgentView>>>) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "agents": rows(&agents) }))
}

async fn metrics(State(agents): State<Arc<Vec<AgentView>>>) -> String {
    let rows = rows(&agents);
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        text.push_str("# HELP ");
        text.push_str(name);
        text.push(' ');
        text.push_str(help);
        text.push_str("\n# TYPE ");
        text.push_str(name);
        text.push_str(" gauge\n");
        for row in &rows {
            let labels = format!("worker={:?},rank=\"{}\"", row.worker, row.rank);
            // Writing to a string does not fail.
            writeln!(text, "{name}{{{labels}}} {}", value(row)).ok();
        }
    }
    media(&mut text, &agents);
    text
}

/// Writes how full the media directories are.
fn media(text: &mut String, agents: &[AgentView]) {
    let sizes: Vec<_> = agents
        .iter()
        .filter_map(|agent| Some((agent.worker.as_str(), agent.media_dir.as_ref()?.size())))
        .collect();
    let families = [
        ("sightline_media_dir_files", "Media files for the engine."),
        ("sightline_media_dir_bytes", "Bytes of media files for the engine."),
    ];
    for (family, help) in families {
        // Writing to a string does not fail.
        writeln!(text, "# HELP {family} {help}\n# TYPE {family} gauge").ok();
        for (worker, (files, bytes)) in &sizes {
            let value = if family.ends_with("files") { files.to_string() } else { bytes.to_string() };
            writeln!(text, "{family}{{worker={worker:?}}} {value}").ok();
        }
    }
}

type Gauge = (&'static str, &'static str, fn(&Row) -> f64);

#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
const GAUGES: [Gauge; 4] = [
    ("sightline_engine_healthy", "Whether the engine answers its health check.", |row| {
        f64::from(row.engine_healthy)
    }),
    ("sightline_engine_coverage_ratio", "Share of the engine's blocks whose keys are known.", |row| {
        row.coverage
    }),
    ("sightline_engine_blocks", "Keys that the engine's cache has.", |row| row.blocks as f64),
    ("sightline_delta_sequence", "Sequence of the last delta.", |row| row.seq as f64),
];

fn rows(agents: &[AgentView]) -> Vec<Row> {
    let mut rows = Vec::new();
    for agent in agents {
        let phase = format!("{:?}", *agent.phase.borrow()).to_lowercase();
        for Followed { rank, feed } in agent.followed.borrow().iter() {
            let status = feed.status();
            rows.push(Row {
                worker: agent.worker.to_string(),
                rank: rank.0,
                phase: phase.clone(),
                incarnation: status.incarnation.map(|it| it.to_string()),
                engine_healthy: status.engine.healthy,
                engine_seq: status.engine_seq,
                seq: status.seq,
                digest: format!("{:016x}", status.digest),
                blocks: status.blocks,
                coverage: status.coverage,
            });
        }
    }
    rows
}
