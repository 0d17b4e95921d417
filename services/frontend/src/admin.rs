//! What operators see: workers, load, index, readiness.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actors::HolderView;
use futures::future::join_all;
use http::Response;
use identity::{Holder, Incarnation, WorkerId};
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer};
use crate::api_error::ApiError;
use crate::metrics::Sampled;
use crate::model_desk::ModelDesk;
use crate::shared::Shared;

/// After this long a frontend takes requests although the index is not complete.
const READY_AFTER: Duration = Duration::from_secs(10);
/// Levels and runs of the tree that are shown unless asked otherwise, and at most.
const TREE_DEPTH: u32 = 4;
const TREE_DEPTH_MAX: u32 = 64;
const TREE_RUNS: usize = 200;
const TREE_RUNS_MAX: usize = 10_000;

impl Shared {
    pub(crate) fn show_workers(&self) -> Value {
        let fleet = self.models.directory().fleet();
        let desks = self.models.desks();
        let loads = self.loads();
        let workers = fleet.models().flat_map(|model| fleet.seats(model)).map(|seat| {
            let card = &seat.worker.card;
            let known = desks.get(&card.model).and_then(|desk| desk.index.holder(&seat.holder));
            let active = loads.get(&seat.holder).map_or(0, |(total, _)| total.active_requests);
            let mut shown = json!({
                "worker": seat.holder.worker.as_str(),
                "rank": seat.holder.rank.0,
                "model": card.model.as_str(),
                "endpoint": card.endpoint,
                "state": seat.worker.state(),
                "incarnation": known.as_ref().and_then(|it| it.incarnation).as_ref().map(Incarnation::to_string),
                "active_requests": active,
            });
            extend(&mut shown, known.map(|known| self.holder_figures(&known)));
            shown
        });
        json!({"workers": workers.collect::<Vec<_>>()})
    }

    fn holder_figures(&self, known: &HolderView) -> Value {
        let lag = known.beat_at.map(|beat| self.clock.now().saturating_sub(beat).as_millis());
        json!({
            "blocks": known.blocks,
            "running": known.running,
            "waiting": known.waiting,
            "kv_usage": known.kv_usage,
            "seq": known.seq,
            "lag_ms": lag.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
            "agrees": known.agrees,
            "coverage": known.coverage,
        })
    }

    /// Sums what is outstanding by holder, and lists it by frontend.
    fn loads(&self) -> BTreeMap<Holder, (placement::Gauges, BTreeMap<String, Value>)> {
        let desks = self.models.desks();
        let loads = desks.values().next().map(|desk| desk.scheduler.loads()).unwrap_or_default();
        let load = |load: actors::HolderLoad| {
            let total = load.peers.iter().fold(load.own.gauges, |sum, (_, gauges)| sum.plus(*gauges));
            let mut by_frontend: BTreeMap<String, Value> =
                load.peers.iter().map(|(frontend, gauges)| (frontend.clone(), gauges_json(gauges))).collect();
            by_frontend.insert(self.id.clone(), gauges_json(&load.own.gauges));
            (load.own.holder, (total, by_frontend))
        };
        loads.into_iter().map(load).collect()
    }

    /// Counts what all frontends have in flight at a worker.
    pub(crate) fn active_at(&self, worker: &WorkerId) -> u32 {
        let loads = self.loads();
        let ranks = loads.iter().filter(|(holder, _)| holder.worker == *worker);
        ranks.map(|(_, (total, _))| total.active_requests).sum()
    }

    pub(crate) fn show_load(&self) -> Value {
        let holders = self.loads().into_iter().map(|(holder, (total, by_frontend))| {
            let mut shown = json!({"worker": holder.worker.as_str(), "rank": holder.rank.0});
            extend(&mut shown, Some(gauges_json(&total)));
            extend(&mut shown, Some(json!({"by_frontend": by_frontend})));
            shown
        });
        json!({"holders": holders.collect::<Vec<_>>()})
    }

    pub(crate) async fn show_index(&self) -> Value {
        let desks = self.models.desks();
        let stats = join_all(desks.values().map(|desk| desk.index.stats())).await;
        let sum = |of: fn(&block_index::Stats) -> u64| -> u64 { stats.iter().flatten().map(of).sum() };
        let tallies = join_all(desks.values().map(|desk| desk.index.tally())).await;
        let count =
            |of: fn(&actors::replicator::Tally) -> u64| -> u64 { tallies.iter().flatten().map(of).sum() };
        let holders = desks.values().flat_map(holders);
        let here = stats.iter().any(Option::is_some) || desks.is_empty();
        json!({
            "blocks": here.then(|| sum(|it| u64::from(it.blocks))),
            "memberships": here.then(|| sum(|it| it.memberships)),
            "bytes": here.then(|| sum(|it| it.bytes)),
            "agreement": self.agreement(),
            "replication": {
                "messages": count(|it| it.messages),
                "rejected": count(|it| it.rejected),
                "gaps": count(|it| it.gaps),
                "asked": count(|it| it.asked),
                "failed": count(|it| it.failed),
            },
            "holders": holders.collect::<Vec<_>>(),
        })
    }

    /// The least agreement among the models' replicas.
    fn agreement(&self) -> f64 {
        self.models.desks().values().map(|desk| desk.index.agreement()).fold(1.0, f64::min)
    }

    pub(crate) async fn show_tree(&self, query: Option<&str>) -> Result<Value, ApiError> {
        let depth = number(query, "depth")?.unwrap_or(TREE_DEPTH).min(TREE_DEPTH_MAX);
        let limit = number(query, "limit")?.unwrap_or(TREE_RUNS).min(TREE_RUNS_MAX);
        let desks = self.models.desks();
        let mut models = Map::new();
        for desk in desks.values() {
            let runs = desk.index.tree(depth, limit).await?;
            models.insert(desk.model.as_str().to_owned(), Value::Array(runs));
        }
        Ok(json!({"models": models}))
    }

    /// Answers 200 once requests are routed with what the index knows, 503 before and at the end.
    pub(crate) fn show_ready(&self) -> Result<Response<Answer>, ApiError> {
        if self.leaving.load(Ordering::Relaxed) {
            return Err(ApiError::unavailable("draining", "the frontend is ending"));
        }
        if !self.is_ready() {
            return Err(ApiError::unavailable(
                "starting",
                "no worker takes requests yet, or the index is being filled",
            ));
        }
        let agreement = self.agreement();
        let status = if agreement < 1.0 { "degraded" } else { "ready" };
        Ok(answer::json(&json!({"status": status, "frontend": self.id, "agreement": agreement})))
    }

    /// Says whether each model has a worker that takes requests, every carded holder was live once and every model's files
    /// were here, or enough time has passed; latches.
    pub(crate) fn is_ready(&self) -> bool {
        if self.ready.load(Ordering::Relaxed) {
            return true;
        }
        let fleet = self.models.directory().fleet();
        let desks = self.models.desks();
        let filled = fleet.version() > 0
            && self.models.are_understood()
            && fleet.models().all(|model| {
                fleet.takes_requests(model) && desks.get(model).is_some_and(|it| it.index.is_ready())
            });
        let waited = self.clock.now().saturating_sub(self.started) >= READY_AFTER;
        let ready = filled || waited;
        self.ready.store(ready, Ordering::Relaxed);
        ready
    }

    /// Reads the gauges that other parts own.
    pub(crate) fn sample(&self) -> Vec<Sampled> {
        let sizes = self.reader.media.cache().sizes();
        let lessons = self.reader.lessons.figures();
        let (facts, names) = (self.facts.tally(), self.names.tally());
        let fleet = self.models.directory().fleet();
        let desks = self.models.desks();
        let holders: Vec<_> = desks.values().flat_map(|desk| desk.index.holders()).collect();
        let coverage = holders.iter().map(|(_, known)| f64::from(known.coverage));
        let blocks: u64 = holders.iter().map(|(_, known)| known.blocks).sum();
        let tallies: Vec<_> = desks.values().map(|desk| desk.scheduler.tally()).collect();
        let waiting: usize = tallies.iter().map(|tally| tally.waiting).sum();
        let pending: usize = tallies.iter().map(|tally| tally.pending_blocks).sum();
        let spans = telemetry::span_tally();
        let gauge = |name, help, value| Sampled { name, help, value };
        vec![
            gauge("workers", "Workers known", float(fleet.workers().len())),
            gauge(
                "replica_agreement",
                "Share of live holders whose digest equals the agent's",
                self.agreement(),
            ),
            gauge(
                "engine_coverage",
                "Least share of an engine's blocks that its agent knows",
                coverage.fold(1.0, f64::min),
            ),
            gauge("holder_blocks", "Blocks in the index, by holder summed", float(blocks)),
            gauge("queued_requests", "Requests that wait for a busy worker", float(waiting)),
            gauge("pending_blocks", "Blocks that dispatches are to bring", float(pending)),
            gauge("learned_images", "Images whose counts engines taught", float(lessons.images)),
            gauge("learned_sizes", "Sizes of images whose counts engines taught", float(lessons.sizes)),
            gauge("lessons_taken", "Counts learned since the start", float(lessons.taken)),
            gauge(
                "lessons_contradicted",
                "Predictions that learned counts made wrong",
                float(lessons.contradicted),
            ),
            gauge("media_facts", "URLs known", float(sizes.facts)),
            gauge("media_facts_told", "Media facts told to other frontends", float(facts.told)),
            gauge("media_facts_heard", "Media facts heard of other frontends", float(facts.heard)),
            gauge("media_names_learned", "Engines' own names for images learned", float(names.learned)),
            gauge("media_names_unsolved", "Requests that told no name", float(names.unsolved)),
            gauge("media_stored_bytes", "Fetched media kept", float(sizes.stored_bytes)),
            gauge("cpu_jobs", "CPU jobs running or waiting", float(self.reader.pool.depth())),
            gauge(
                "trace_spans_exported",
                "Spans of this process that the collector has",
                float(spans.exported),
            ),
            gauge("trace_spans_failed", "Spans that the collector did not take", float(spans.failed)),
            gauge("trace_spans_dropped", "Spans that did not fit the queue", float(spans.dropped)),
        ]
    }
}

fn holders(desk: &ModelDesk) -> Vec<Value> {
    let shown = desk.index.holders().into_iter().map(|(holder, known)| {
        json!({
            "model": desk.model.as_str(),
            "worker": holder.worker.as_str(),
            "rank": holder.rank.0,
            "state": known.state.name(),
            "incarnation": known.incarnation.as_ref().map(Incarnation::to_string),
            "seq": known.seq,
            "agent_seq": known.beat_seq,
            "digest": format!("{:016x}", known.digest),
            "blocks": known.blocks,
            "agrees": known.agrees,
            "coverage": known.coverage,
        })
    });
    shown.collect()
}

fn gauges_json(gauges: &placement::Gauges) -> Value {
    json!({
        "active_requests": gauges.active_requests,
        "prefill_tokens": gauges.prefill_tokens,
        "media_tokens": gauges.media_tokens,
        "decode_blocks": gauges.decode_blocks,
    })
}

fn extend(object: &mut Value, more: Option<Value>) {
    if let (Value::Object(object), Some(Value::Object(more))) = (object, more) {
        object.extend(more);
    }
}

/// Reads a number from a query.
fn number<T: std::str::FromStr>(query: Option<&str>, name: &str) -> Result<Option<T>, ApiError> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back();
    let Some(value) = value else { return Ok(None) };
    value
        .parse()
        .map(Some)
        .map_err(|_| ApiError::bad_request("invalid_value", format!("`{name}` must be a number")).param(name))
}

/// Counts as a float; exact to 2^53.
fn float(count: impl TryInto<u64>) -> f64 {
    let count: u64 = count.try_into().unwrap_or(u64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "a gauge's last digits don't matter")]
    let float = count as f64;
    float
}
