//! Chat and completion requests.

use std::sync::Arc;

use actors::ScheduleRequest;
use actors::media_resolver::Item;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use parking_lot::Mutex;
use placement::{Confidence, Obstacle, Traits};
use prompt::PlacedMedia;
use tracing::Instrument as _;

use crate::answer::Answer;
use crate::api_error::ApiError;
use crate::call::Call;
use crate::config::Tenancy;
use crate::dispatch::{Dispatch, Draft, waiting};
use crate::headers::{self, Wishes};
use crate::names::Names;
use crate::record::{MediaReport, Record};
use crate::shared::Shared;
use crate::trace;
use crate::understanding::Understood;

/// The two kinds of bodies that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Chat,
    Completion,
}

impl Kind {
    const fn path(self) -> PathAndQuery {
        match self {
            Self::Chat => PathAndQuery::from_static("/v1/chat/completions"),
            Self::Completion => PathAndQuery::from_static("/v1/completions"),
        }
    }
}

impl Shared {
    /// Serves a request.
    pub(crate) async fn generate(
        self: &Arc<Self>,
        kind: Kind,
        call: &Call<'_>,
        body: Bytes,
    ) -> Result<Response<Answer>, ApiError> {
        let wishes = Wishes::read(&call.parts.headers, &call.caller)?;
        let mut understood = self.understand(kind, call, (body, true)).await?;
        let (question, draft) = self.question(&mut understood, call, wishes).await;
        let dispatch = Dispatch {
            method: Method::POST,
            path: kind.path(),
            headers: headers::upstream(&call.parts.headers, &call.id, self.defaults.keep_authorization),
            payload: understood.payload,
            late: understood.late,
            allowance: call.allowance.clone(),
            question,
            draft,
            operator: call.caller.operator,
            arrived: call.arrived,
        };
        self.dispatch(dispatch).await.map_err(|error| match (kind, error.param.as_deref()) {
            (Kind::Completion, Some("messages")) => error.param("prompt"),
            (Kind::Chat | Kind::Completion, _) => error,
        })
    }

    /// Decides where a request would go, and forwards nothing.
    pub(crate) async fn explain_body(
        &self,
        call: &Call<'_>,
        body: Bytes,
    ) -> Result<serde_json::Value, ApiError> {
        if self.reader.tenancy == Tenancy::Isolated && !call.caller.operator {
            // Workers and what they have to do are made of all tenants' requests.
            let message = "while tenants are isolated, decisions are explained to operators";
            return Err(ApiError::new(StatusCode::FORBIDDEN, "operator_required", message));
        }
        let wishes = Wishes::read(&call.parts.headers, &call.caller)?;
        let mut understood = self.understand(Kind::Chat, call, (body, false)).await?;
        let (question, draft) = self.question(&mut understood, call, wishes).await;
        let desk = self.models.desk(&understood.model).await?;
        let record = match desk.scheduler.explain(&question).await? {
            Ok(decision) => {
                let choice = decision.choice();
                let fleet = self.models.directory().fleet();
                let worker = fleet.worker(&choice.holder.worker);
                let block_size = worker.map_or(0, |worker| worker.card.block_size);
                let confidence =
                    worker.map_or(Confidence::Unknown, |worker| draft.confidence_at(&worker.card));
                let media_tokens = question.routing.mm_routing_info.total_image_tokens;
                let predicted = draft.predicts(&decision).then(|| placement::Predicted {
                    prompt_tokens: question.routing.prompt_tokens,
                    cached_tokens: choice.work.cached_tokens,
                    pending_tokens: choice.pending_blocks.saturating_mul(block_size),
                    media_tokens,
                    block_size,
                });
                draft.record.placed(decision, (block_size, confidence), predicted)
            }
            Err(unplaced) => draft.record.unplaced(&unplaced),
        };
        Ok(record.explain())
    }

    /// Reads a body that is to be forwarded, or only to be explained.
    async fn understand(
        &self,
        kind: Kind,
        call: &Call<'_>,
        (body, forwarded): (Bytes, bool),
    ) -> Result<Understood, ApiError> {
        let (span, tenant) = (trace::preprocess(), &call.caller.tenant);
        let understood = match kind {
            Kind::Chat => {
                let asker = (tenant.as_str(), &call.allowance);
                self.reader.chat(body, asker, forwarded).instrument(span.clone()).await?
            }
            Kind::Completion => self.reader.completion(body, tenant).instrument(span.clone()).await?,
        };
        trace::understood(&span, &understood);
        for item in &understood.items {
            self.metrics.media(item.origin.as_str(), outcome(item));
        }
        if let Some(fallback) = understood.fallback {
            self.metrics.fallback(fallback);
        }
        Ok(understood)
    }

    async fn question(
        &self,
        understood: &mut Understood,
        call: &Call<'_>,
        wishes: Wishes,
    ) -> (ScheduleRequest, Draft) {
        let policy = wishes.policy.unwrap_or(self.defaults.policy);
        let names = Names::of(&understood.model, &mut understood.prepared, &understood.items);
        let routing = Arc::new(std::mem::take(&mut understood.prepared.routing));
        let prepared = &understood.prepared;
        let mut question = ScheduleRequest::new(Arc::clone(&routing), policy);
        question.direct = wishes.direct;
        question.session = wishes.session;
        question.adapter.clone_from(&understood.adapter);
        question.salted = understood.salted;
        question.payload_free.clone_from(&understood.payload_free);
        question.media_bytes =
            understood.items.iter().filter_map(|item| Some(item.known.as_ref()?.bytes)).sum();
        let first = prepared.media.first().or_else(|| prepared.beyond.first());
        question.first_media_token = first.map(|placed| u32::try_from(placed.offset).unwrap_or(u32::MAX));
        question.rendering.clone_from(&understood.rendering);
        question.streams = understood.params.stream;
        question.waiting = waiting(self.defaults.wait_max, understood.params.priority, &call.caller.tenant);
        self.look_up(understood, &mut question).await;
        let record = Record {
            request_id: call.id.clone(),
            model: understood.model.clone(),
            policy,
            fallback: understood.fallback,
            block_size: routing.chains.first().map_or(0, |chain| chain.block_size),
            media: understood.items.iter().map(|item| report(item, understood)).collect(),
            decision: None,
            appraisals: Vec::new(),
            predicted: None,
            confidence: Confidence::Unknown,
            outcome: Mutex::default(),
        };
        let reading = &understood.params.reading;
        let obstacle = if reading.skips_prefix_cache {
            Some(Obstacle::PromptLogprobs)
        } else if reading.truncate_prompt_tokens.is_some() {
            Some(Obstacle::Truncated)
        } else {
            None
        };
        let scoped = understood.salted || !understood.adapter.is_empty();
        let draft = Draft {
            record: Arc::new(record),
            obstacle,
            predicted: understood.fallback.is_none() && understood.one_prompt,
            traits: Traits { hybrid: understood.hybrid, scoped },
            confidence: understood.prepared.confidence,
            homework: understood.homework.clone(),
            names,
        };
        (question, draft)
    }
}

/// Says how well an item is known.
fn outcome(item: &Item) -> &'static str {
    match (&item.known, &item.passed) {
        (Some(_), _) => "known",
        (None, Some(passed)) if passed.id.is_some() => "named",
        (None, Some(passed)) if passed.size.is_some() => "sized",
        (None, Some(_) | None) => "unread",
    }
}

fn report(item: &Item, understood: &Understood) -> MediaReport {
    let (known, passed) = (item.known.as_ref(), item.passed.as_ref());
    let size = known.and_then(|known| known.size).or_else(|| passed?.size);
    let media_id = known.map(|known| known.id.clone()).or_else(|| passed?.id.clone());
    let find = |placed: &[PlacedMedia]| placed.iter().copied().find(|placed| placed.index == item.index);
    let (keyed, beyond) = (find(&understood.prepared.media), find(&understood.prepared.beyond));
    MediaReport {
        index: item.index,
        kind: item.kind.as_str(),
        media_id: media_id.clone(),
        width: size.map(|size| size.width),
        height: size.map(|size| size.height),
        tokens: keyed.or(beyond).map(|placed| placed.tokens),
        source: item.origin.as_str(),
        fallback: match keyed {
            Some(_) => None,
            None if size.is_none() => Some("media-unsized"),
            None if media_id.is_none() => Some("media-unidentified"),
            None => understood.fallback,
        },
    }
}
