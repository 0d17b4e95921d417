//! Predictions compared with what engines count.

use std::collections::HashMap;
use std::sync::Arc;

use identity::{Holder, ModelName};
use membership::replica::Phase;
use parking_lot::Mutex;
use placement::{Actual, Circumstances, IndexState, Obstacle, Predicted, Ruling, Verdict, judge};

use crate::relay::Ticket;
use crate::shared::Shared;
use crate::trace;
use crate::usage::Usage;

/// Answers in a row, per holder, in which no cache was read although some was predicted.
#[derive(Debug, Default)]
pub(crate) struct Streaks(Mutex<HashMap<Holder, u32>>);

/// How well the index stood for a holder at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sighting {
    /// Blocks removed so far.
    removed: u64,
    /// Whether it follows the agent, and the agent all of the engine.
    whole: bool,
}

/// Holders whose streaks are kept.
const STREAKS_MAX: usize = 4096;

impl Streaks {
    fn get(&self, holder: &Holder) -> u32 {
        self.0.lock().get(holder).copied().unwrap_or(0)
    }

    fn note(&self, holder: &Holder, predicted: &Predicted, actual: &Actual) {
        if predicted.cached_tokens == 0 {
            return;
        }
        let mut streaks = self.0.lock();
        match actual.cached_tokens {
            Some(0) if streaks.len() < STREAKS_MAX || streaks.contains_key(holder) => {
                let streak = streaks.entry(holder.clone()).or_default();
                *streak = streak.saturating_add(1);
            }
            Some(_) => {
                streaks.remove(holder);
            }
            None => {}
        }
    }
}

impl Shared {
    /// Judges an answer that has ended.
    pub(crate) fn verify(self: &Arc<Self>, ticket: &Ticket, usage: Option<Usage>) {
        self.learn(ticket, usage);
        let record = &ticket.record;
        let actual = usage.map(|usage| Actual {
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens(),
            media_tokens: usage.media_tokens(),
        });
        if let Some(actual) = &actual {
            trace::counted(&ticket.span, actual);
        }
        let Some(predicted) = record.predicted else { return };
        let obstacle = match (ticket.succeeded, actual) {
            (false, _) => Some(Obstacle::Failed),
            (true, None) => Some(Obstacle::DetailsAbsent),
            (true, Some(_)) => ticket.draft.obstacle,
        };
        let circumstances = Circumstances {
            obstacle,
            index: self.index_state(ticket),
            traits: ticket.draft.traits,
            barren_streak: self.streaks.get(&ticket.holder),
        };
        let verdict = judge(&predicted, &actual.unwrap_or_default(), &circumstances);
        if let (Some(actual), None) = (&actual, obstacle) {
            self.streaks.note(&ticket.holder, &predicted, actual);
        }
        {
            let mut outcome = record.outcome.lock();
            outcome.actual = actual;
            outcome.verdict = Some(verdict);
        }
        self.metrics.verdict(verdict.as_str());
        trace::judged(&ticket.span, verdict);
        if let Some(desk) = self.models.desks().get(&record.model) {
            let (holder, feature) = (ticket.holder.clone(), ticket.feature);
            desk.scheduler.judged(Ruling { holder, feature, tenant: ticket.tenant, verdict });
        }
        if let Verdict::Mismatch(class) = verdict {
            self.records.keep(record);
            self.distrust(&ticket.draft.names, &record.model);
            let request_id = &record.request_id;
            tracing::debug!(request_id, worker = %ticket.holder.worker, class = class.as_str(), "prediction was wrong");
        }
    }

    /// How well the index stood for the holder while the request ran.
    fn index_state(&self, ticket: &Ticket) -> IndexState {
        let now = self.sighting(&ticket.record.model, &ticket.holder);
        let behind = |sighting: &Sighting| !sighting.whole;
        if now.removed != ticket.sighting.removed {
            IndexState::Removed
        } else if behind(&now) || behind(&ticket.sighting) {
            IndexState::Behind
        } else {
            IndexState::Steady
        }
    }

    /// Looks at how well the index stands for a holder.
    pub(crate) fn sighting(&self, model: &ModelName, holder: &Holder) -> Sighting {
        let desks = self.models.desks();
        let known = desks.get(model).and_then(|desk| desk.index.holder(holder));
        known.map_or_else(Sighting::default, |known| Sighting {
            removed: known.removed,
            whole: known.state == Phase::Live && known.agrees != Some(false) && known.coverage >= 1.0,
        })
    }
}
