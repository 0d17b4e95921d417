//! What operators see: workers, load, index, readiness.

use std::collections::BTreeMap;

use http::Response;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::api_error::ApiError;
use crate::metrics::Sampled;
use crate::shared::Shared;

impl Shared {
    pub(crate) fn show_workers(&self) -> Value {
        let fleet = self.models.directory().fleet();
        let workers = fleet.models().flat_map(|model| fleet.seats(model)).map(|seat| {
            let card = &seat.worker.card;
            json!({
                "worker": seat.holder.worker.as_str(),
                "rank": seat.holder.rank.0,
                "model": card.model.as_str(),
                "endpoint": card.endpoint,
                "state": seat.worker.state(),
            })
        });
        json!({"workers": workers.collect::<Vec<_>>()})
    }

    pub(crate) fn show_load(&self) -> Value {
        let desks = self.models.desks();
        let loads = desks.values().next().map(|desk| desk.scheduler.loads()).unwrap_or_default();
        let holders = loads.into_iter().map(|load| {
            let total = load.peers.iter().fold(load.own.gauges, |sum, (_, gauges)| sum.plus(*gauges));
            let mut by_frontend: BTreeMap<&str, Value> = BTreeMap::new();
            for (frontend, gauges) in &load.peers {
                by_frontend.insert(frontend, gauges_json(gauges));
            }
            by_frontend.insert(&self.id, gauges_json(&load.own.gauges));
            let mut holder = json!({
                "worker": load.own.holder.worker.as_str(),
                "rank": load.own.holder.rank.0,
                "by_frontend": by_frontend,
            });
            if let (Value::Object(holder), Value::Object(total)) = (&mut holder, gauges_json(&total)) {
                holder.extend(total);
            }
            holder
        });
        json!({"holders": holders.collect::<Vec<_>>()})
    }

    pub(crate) fn show_index(&self) -> Value {
        json!({"holders": []})
    }

    pub(crate) async fn show_tree(&self, _query: Option<&str>) -> Result<Value, ApiError> {
        Ok(json!({}))
    }

    /// Answers 200 once requests are routed with what the index knows, 503 before and at the end.
    pub(crate) fn show_ready(&self) -> Result<Response<Answer>, ApiError> {
        if self.stop.is_cancelled() {
            return Err(ApiError::unavailable("draining", "the frontend is ending"));
        }
        Ok(answer::json(&json!({"status": "ready"})))
    }

    /// Reads the gauges that other parts own.
    pub(crate) fn sample(&self) -> Vec<Sampled> {
        let sizes = self.reader.media.cache().sizes();
        let fleet = self.models.directory().fleet();
        vec![
            Sampled { name: "workers", help: "Workers known", value: float(fleet.workers().len()) },
            Sampled { name: "media_facts", help: "URLs known", value: float(sizes.facts) },
            Sampled {
                name: "media_stored_bytes",
                help: "Fetched media kept",
                value: float(sizes.stored_bytes),
            },
            Sampled {
                name: "cpu_jobs",
                help: "CPU jobs running or waiting",
                value: float(self.reader.pool.depth()),
            },
        ]
    }
}

fn gauges_json(gauges: &placement::Gauges) -> Value {
    json!({
        "active_requests": gauges.active_requests,
        "prefill_tokens": gauges.prefill_tokens,
        "media_tokens": gauges.media_tokens,
        "decode_blocks": gauges.decode_blocks,
    })
}

/// Counts as a float; exact to 2^53.
fn float(count: impl TryInto<u64>) -> f64 {
    let count: u64 = count.try_into().unwrap_or(u64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "a gauge's last digits don't matter")]
    let float = count as f64;
    float
}
