//! The switches that vLLM has in development mode.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use futures::future::join_all;
use serde_json::{Value, json};

use super::Engine;

/// `POST /reset_prefix_cache`: fails while blocks are in use; the event rides the next batch of each rank.
pub(crate) async fn prefix_cache(State(engine): State<Arc<Engine>>) -> Json<Value> {
    let reset = join_all(engine.ranks.iter().map(|rank| rank.reset_prefix_cache())).await;
    Json(json!({ "success": reset.into_iter().all(|reset| reset) }))
}

/// `POST /reset_mm_cache`: identities without data are unknown again.
pub(crate) async fn mm_cache(State(engine): State<Arc<Engine>>) {
    engine.media.reset();
}

/// `POST /reset_encoder_cache`.
pub(crate) async fn encoder_cache(State(engine): State<Arc<Engine>>) {
    join_all(engine.ranks.iter().map(|rank| rank.reset_encoder_cache())).await;
}
