//! What the engine says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Engine;
use crate::kv_event_source::KvEventSource;

/// `GET /v1/models`.
pub(crate) async fn models(State(engine): State<Arc<Engine>>) -> Json<Value> {
    let created = engine.started.as_secs();
    Json(json!({"object": "list", "data": [{
        "id": engine.model_name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": engine.model_path,
        "parent": null,
        "max_model_len": engine.max_model_len,
        "permission": [{
            "id": format!("modelperm-{:016x}", engine.started.as_nanos() & 0xffff_ffff_ffff_ffff),
            "object": "model_permission",
            "created": created,
            "allow_create_engine": false,
            "allow_sampling": true,
            "allow_logprobs": true,
            "allow_search_indices": false,
            "allow_view": true,
            "allow_fine_tuning": false,
            "organization": "*",
            "group": null,
            "is_blocking": false,
        }],
    }]}))
}

/// `GET /version`.
pub(crate) async fn version(State(engine): State<Arc<Engine>>) -> Json<Value> {
    Json(json!({ "version": engine.version }))
}

/// `GET /load`.
pub(crate) async fn load(State(engine): State<Arc<Engine>>) -> Json<Value> {
    let load: usize =
        engine.ranks.iter().map(|rank| rank.state()).map(|state| state.running + state.waiting).sum();
    Json(json!({ "server_load": load }))
}

/// `GET /kv_event_sources`: one entry for each rank that publishes.
pub(crate) async fn kv_event_sources(
    State(engine): State<Arc<Engine>>,
) -> Json<BTreeMap<usize, KvEventSource>> {
    Json(engine.event_sources.iter().cloned().enumerate().collect())
}
