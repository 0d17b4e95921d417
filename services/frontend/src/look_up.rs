//! The question to indexers, where the index is not here.

use std::sync::Arc;

use actors::ScheduleRequest;

use crate::desk_index::DeskIndex;
use crate::shared::Shared;
use crate::understanding::Understood;

/// What a request lost that no indexer told of.
pub(crate) const FALLBACK: &str = "index-remote";

impl Shared {
    /// Asks indexers of a prompt, once; where nobody answers it is routed by load, and nothing is predicted.
    pub(crate) async fn look_up(&self, understood: &mut Understood, question: &mut ScheduleRequest) {
        let Ok(desk) = self.models.desk(&understood.model).await else { return };
        let DeskIndex::Elsewhere { remote, model } = &desk.index else { return };
        let began = self.clock.now();
        let found = remote.look_up(model, &question.routing).await;
        self.metrics.looked_up(self.clock.now().saturating_sub(began));
        let outcome = match &found {
            Ok(found) if found.is_cut() => "cut",
            Ok(_) => "answered",
            Err(unanswered) => unanswered.as_str(),
        };
        self.metrics.index_query(outcome);
        if outcome != "answered" {
            self.metrics.fallback(FALLBACK);
            understood.fallback.get_or_insert(FALLBACK);
        }
        question.found = Some(Arc::new(found.unwrap_or_default()));
    }
}
