//! `/v1/models`.

use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::shared::Shared;

impl Shared {
    /// Lists the names under which models are served, sorted.
    pub(crate) fn list_models(&self) -> Value {
        let fleet = self.models.directory().fleet();
        let mut names: Vec<&str> = fleet.names().map(|(name, _)| name).collect();
        names.sort_unstable();
        json!({
            "object": "list",
            "data": names.into_iter().filter_map(|name| self.model(name)).collect::<Vec<_>>(),
        })
    }

    /// Shows one of them.
    pub(crate) fn show_model(&self, name: &str) -> Result<Value, ApiError> {
        self.model(name).ok_or_else(|| {
            ApiError::not_found("model_not_found", format!("the model `{name}` does not exist"))
                .param("model")
        })
    }

    fn model(&self, name: &str) -> Option<Value> {
        let fleet = self.models.directory().fleet();
        let served = fleet.served(name)?;
        let contexts =
            fleet.seats(&served.model).iter().map(|seat| seat.worker.card.limits.context_tokens_max);
        let context = contexts.filter(|context| *context > 0).max();
        let parent = (name != served.model.as_str()).then(|| served.model.as_str());
        Some(json!({
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "sightline",
            "root": served.model.as_str(),
            "parent": parent,
            "max_model_len": context,
        }))
    }
}
