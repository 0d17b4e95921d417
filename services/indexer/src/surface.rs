//! The HTTP surface: queries for those who route, the rest for operators.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adapter_http::{Bounds, Listener};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::future::join_all;
use hyper_util::service::TowerToHyperService;
use ports::Clock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::desks::Desks;
use crate::query::Queries;

/// Bodies held at once; more are turned away.
const BODIES_MAX: usize = 64;
/// After this long the indexer is ready although the index is not complete.
const READY_AFTER: Duration = Duration::from_secs(10);
/// Connections at once.
const CONNECTIONS_MAX: usize = 4096;
/// How long a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// What requests share.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    pub(crate) desks: Desks,
    pub(crate) queries: Queries,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Duration,
    pub(crate) bodies: Arc<Semaphore>,
}

impl Surface {
    pub(crate) fn new(desks: Desks, queries: Queries, clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self { desks, queries, clock, started, bodies: Arc::new(Semaphore::new(BODIES_MAX)) }
    }

    fn is_ready(&self) -> bool {
        self.desks.are_ready() || self.clock.now().saturating_sub(self.started) >= READY_AFTER
    }
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: Listener,
    surface: Surface,
    body_bytes_max: usize,
    stop: CancellationToken,
) {
    let router = Router::new()
        .route("/query", post(query))
        .route("/health/live", get(async || StatusCode::OK))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/index", get(index))
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(surface);
    let bounds = Bounds { connections_max: CONNECTIONS_MAX, ..Bounds::default() };
    adapter_http::serve(listener, TowerToHyperService::new(router), bounds, stop).await;
}

async fn query(State(surface): State<Surface>, request: Request) -> Response {
    let Ok(_held) = surface.bodies.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")]).into_response();
    };
    let body = match tokio::time::timeout(BODY_DEADLINE, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejected)) => return rejected.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    let (status, answer) = match surface.queries.answer(&body) {
        Ok(answer) => (StatusCode::OK, answer),
        Err(refused) => {
            (StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::BAD_REQUEST), refused.body())
        }
    };
    (status, [(header::CONTENT_TYPE, "application/json")], answer).into_response()
}

async fn ready(State(surface): State<Surface>) -> Response {
    let agreement = surface.desks.agreement();
    let (code, status) = match (surface.is_ready(), agreement < 1.0) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        (true, true) => (StatusCode::OK, "degraded"),
        (true, false) => (StatusCode::OK, "ready"),
    };
    (code, Json(json!({"status": status, "agreement": agreement}))).into_response()
}

async fn index(State(surface): State<Surface>) -> Json<Value> {
    let desks = surface.desks.all();
    let stats = join_all(desks.values().map(|desk| desk.index.stats())).await;
    let sum = |of: fn(&block_index::Stats) -> u64| -> u64 { stats.iter().flatten().map(of).sum() };
    let mut holders = Vec::new();
    for (model, desk) in desks.iter() {
        let view = desk.index.view();
        let mut rows: Vec<_> = view.holders().collect();
        rows.sort_by_key(|(holder, _)| *holder);
        for (holder, known) in rows {
            holders.push(json!({
                "model": model.as_str(),
                "worker": holder.worker.as_str(),
                "rank": holder.rank.0,
                "state": known.state.name(),
                "seq": known.seq,
                "digest": format!("{:016x}", known.digest),
                "blocks": known.blocks,
                "agrees": known.agrees,
                "coverage": known.coverage,
            }));
        }
    }
    Json(json!({
        "blocks": sum(|it| u64::from(it.blocks)),
        "memberships": sum(|it| it.memberships),
        "bytes": sum(|it| it.bytes),
        "agreement": surface.desks.agreement(),
        "holders": holders,
    }))
}

async fn metrics(State(surface): State<Surface>) -> String {
    let desks = surface.desks.all();
    let stats = join_all(desks.values().map(|desk| desk.index.stats())).await;
    let tallies = join_all(desks.values().map(|desk| desk.replicator.tally())).await;
    let stat = |of: fn(&block_index::Stats) -> u64| -> u64 { stats.iter().flatten().map(of).sum() };
    let tally = |of: fn(&actors::replicator::Tally) -> u64| -> u64 { tallies.iter().flatten().map(of).sum() };
    let (answered, refused) = surface.queries.counts();
    let lookups = surface.queries.lookups().load(Ordering::Relaxed);
    let mut text = String::new();
    let mut write = |name: &str, kind: &str, help: &str, value: String| {
        // Writing to a string does not fail.
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n").ok();
    };
    let agreement = surface.desks.agreement().to_string();
    write(
        "sightline_replica_agreement",
        "gauge",
        "Share of live holders whose digest equals the agent's.",
        agreement,
    );
    let gauges = [
        ("sightline_index_blocks", "Distinct blocks.", stat(|it| u64::from(it.blocks))),
        ("sightline_index_memberships", "Pairs of holder and block.", stat(|it| it.memberships)),
        ("sightline_index_bytes", "Bytes allocated.", stat(|it| it.bytes)),
    ];
    for (name, help, value) in gauges {
        write(name, "gauge", help, value.to_string());
    }
    let counters = [
        ("sightline_queries_answered_total", "Questions answered.", answered),
        ("sightline_lookups_answered_total", "Frontends' lookups answered.", lookups),
        ("sightline_queries_refused_total", "Questions that make no sense here.", refused),
        ("sightline_replica_messages_total", "Deltas and beats heard.", tally(|it| it.messages)),
        ("sightline_replica_gaps_total", "Gaps that the bus reported.", tally(|it| it.gaps)),
        ("sightline_replica_repairs_total", "Questions to agents.", tally(|it| it.asked)),
        ("sightline_replica_failures_total", "Questions to agents that failed.", tally(|it| it.failed)),
    ];
    for (name, help, value) in counters {
        write(name, "counter", help, value.to_string());
    }
    text
}
