//! From a placed request to the first byte of its answer.

use std::sync::Arc;
use std::time::Duration;

use actors::dim_cache::Allowance;
use actors::{Assignment, Fleet, ScheduleRequest, Waiting};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use identity::{Rank, WorkerId};
use membership::Card;
use membership::card::Feed;
use placement::{Confidence, Decision, Doubt, Predicted};
use ports::engine;
use tracing::Instrument as _;

use crate::answer::Answer;
use crate::api_error::ApiError;
use crate::hand_over::Filled;
use crate::headers;
use crate::homework::Homework;
use crate::late_payload::LatePayload;
use crate::lessons::Build;
use crate::names::Names;
use crate::payload::Payload;
use crate::record::Record;
use crate::relay::{Relay, Ticket};
use crate::shared::Shared;
use crate::trace;

/// What clients hear of an engine that took their request and fell silent.
const HUNG: &str = "the worker failed before it answered";

/// A request on its way to a worker.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Payload,
    /// What the payload waits for.
    pub(crate) late: Option<Box<LatePayload>>,
    /// What may be held for it.
    pub(crate) allowance: Allowance,
    pub(crate) question: ScheduleRequest,
    /// What is remembered of it, but for where it goes.
    pub(crate) draft: Draft,
    /// Whether the caller sees how it was routed.
    pub(crate) operator: bool,
    /// When the request arrived, on the clock.
    pub(crate) arrived: Duration,
}

/// What is known of a request before it is placed.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) record: Arc<Record>,
    /// Why the engine's count could not be compared with a prediction, whatever it says.
    pub(crate) obstacle: Option<placement::Obstacle>,
    /// Whether there is a prediction.
    pub(crate) predicted: bool,
    pub(crate) traits: placement::Traits,
    /// How its prompt is known, whoever serves it.
    pub(crate) confidence: Confidence,
    /// Images whose counts are learned.
    pub(crate) homework: Option<Arc<Homework>>,
    /// What it has to do with engines' names for images.
    pub(crate) names: Names,
}

impl Draft {
    /// Says whether there is a prediction for the worker that is chosen.
    pub(crate) fn predicts(&self, decision: &Decision) -> bool {
        self.predicted && decision.choice().doubt != Some(Doubt::OtherRendering)
    }

    /// Says how the prompt is known to the worker that serves it.
    pub(crate) fn confidence_at(&self, card: &Card) -> Confidence {
        let known = match &self.homework {
            _ if !self.predicted => Confidence::Unknown,
            Some(homework) => homework.confidence(Build::of(card), self.confidence),
            None => self.confidence,
        };
        match card.feed {
            Feed::Events => known,
            // What it holds is itself only believed.
            Feed::Dispatches { .. } => known.min(Confidence::Learned),
        }
    }
}

/// An answer that has begun.
struct Begun {
    status: StatusCode,
    headers: HeaderMap,
    first: Option<Bytes>,
    body: engine::ResponseBody,
}

/// What came instead of an answer.
enum Failure {
    Engine(engine::Error),
    /// The engine says that it cannot serve anybody now.
    Unavailable(Box<Begun>),
    /// Nothing came, and the engine answers nobody any more.
    Down,
}

impl Failure {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Engine(error) if error.unsent() => "connect",
            Self::Engine(engine::Error::HeadTimeout { .. } | engine::Error::Idle { .. }) => "timeout",
            Self::Engine(_) => "broken",
            Self::Unavailable(_) => "unavailable",
            Self::Down => "down",
        }
    }

    /// Says whether the engine may have died of the request.
    const fn deadly(&self) -> bool {
        matches!(self, Self::Engine(engine::Error::Broken { .. }) | Self::Down)
    }
}

impl Shared {
    /// Places a request, forwards it, and answers once the first byte is there; at most two workers are tried.
    pub(crate) async fn dispatch(
        self: &Arc<Self>,
        mut dispatch: Dispatch,
    ) -> Result<Response<Answer>, ApiError> {
        self.retries.request();
        if self.retries.quarantined(|| dispatch.payload.constant(), self.clock.now()) {
            let message = "the request is set aside: two workers failed while they served it";
            return Err(ApiError::unavailable("request_quarantined", message));
        }
        let first = match self.attempt(&mut dispatch).await? {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let (failure, worker) = first;
        let (reason, deadly) = (failure.reason(), failure.deadly());
        let again = match failure {
            // It was given up because another try was to be had.
            Failure::Down => true,
            Failure::Engine(_) | Failure::Unavailable(_) => {
                reason != "timeout" && dispatch.question.direct.is_none() && self.retries.take()
            }
        };
        if !again {
            return self.give_up(&dispatch, failure);
        }
        self.metrics.retry(reason);
        tracing::info!(worker = %worker, reason, "worker failed before it answered, trying another");
        dispatch.question.excluded.push(worker);
        match self.attempt(&mut dispatch).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err((second, _))) => {
                if deadly && second.deadly() {
                    self.retries.quarantine(&dispatch.payload.constant(), self.clock.now());
                }
                self.give_up(&dispatch, second)
            }
            // Nobody else can take it: what the first worker did is the better answer.
            Err(_) => self.give_up(&dispatch, failure),
        }
    }

    fn give_up(&self, dispatch: &Dispatch, failure: Failure) -> Result<Response<Answer>, ApiError> {
        match failure {
            Failure::Engine(error) => Err(error.into()),
            Failure::Down => Err(ApiError::new(StatusCode::BAD_GATEWAY, "worker_failed", HUNG)),
            Failure::Unavailable(begun) => Ok(pass(*begun, &dispatch.draft.record, dispatch.operator)),
        }
    }

    /// Tries one worker.
    async fn attempt(
        self: &Arc<Self>,
        dispatch: &mut Dispatch,
    ) -> Result<Result<Response<Answer>, (Failure, WorkerId)>, ApiError> {
        let began = self.clock.now();
        let desk = self.models.desk(&dispatch.draft.record.model).await?;
        let assignment = match desk.scheduler.schedule(dispatch.question.clone()).await {
            Ok(assignment) => assignment,
            Err(error) => {
                if matches!(error, actors::scheduler::Error::Overloaded { .. }) {
                    self.metrics.shed("queue");
                }
                return Err(error.into());
            }
        };
        self.metrics.decided(self.clock.now().saturating_sub(began));
        let predicted = dispatch.draft.predicts(&assignment.decision).then(|| assignment.predicted());
        let Assignment { worker, holder, decision, reservation } = assignment;
        let record = self.remember(dispatch, &worker.card, (decision, predicted));
        let sighting = self.sighting(&record.model, &holder);
        if let Some(late) = dispatch.late.take() {
            dispatch.payload = late.settle(&self.reader).await?;
        }
        let quest = self.ask_names(&dispatch.draft.names, &holder, worker.card.block_size);
        let Filled { chunks: body, share } = self.body_for(dispatch, &worker.card).await?;
        let span = trace::proxy(&record, &holder);
        let sent = self.forward(dispatch, body, (&worker.endpoint, holder.rank)).instrument(span.clone());
        let begun = tokio::select! {
            biased;
            begun = sent => begun,
            () = self.better_off_elsewhere(dispatch, &holder.worker) => Err(Failure::Down),
        };
        drop(share);
        match begun {
            Ok(begun) => {
                self.models.directory().answered(&holder.worker);
                if dispatch.question.streams && begun.status.is_success() {
                    reservation.first_token();
                }
                let first_byte = self.clock.now().saturating_sub(dispatch.arrived);
                self.metrics.first_byte(record.model.as_str(), first_byte);
                trace::begun(&span, begun.status, first_byte);
                let ticket = Ticket {
                    shared: Arc::clone(self),
                    record,
                    holder,
                    sighting,
                    quest,
                    draft: dispatch.draft.clone(),
                    feature: dispatch.question.feature(),
                    tenant: dispatch.question.waiting.tenant,
                    succeeded: begun.status.is_success(),
                    reservation: Some(reservation),
                    span,
                };
                Ok(Ok(relay(begun, ticket, dispatch.operator)))
            }
            Err(failure) => {
                span.record("failure", failure.reason());
                if let Failure::Engine(error) = &failure {
                    if error.refused() {
                        self.models.directory().refused(&holder.worker);
                    } else {
                        self.models.directory().failed(&holder.worker);
                    }
                    tracing::warn!(worker = %holder.worker, cause = %error, "worker failed");
                }
                Ok(Err((failure, holder.worker)))
            }
        }
    }

    /// Waits until a worker's engine is down, and another try may and can be had, which it takes; a second try that
    /// goes down ends.
    async fn better_off_elsewhere(&self, dispatch: &Dispatch, worker: &WorkerId) {
        let (question, model) = (&dispatch.question, &dispatch.draft.record.model);
        let second = !question.excluded.is_empty();
        let lost = |fleet: &Fleet| {
            let down = fleet.worker(worker).is_some_and(|worker| worker.is_down());
            down && (second || question.direct.is_none() && fleet.takes_requests(model))
        };
        self.models.directory().wait_for(lost).await;
        if !second && !self.retries.take() {
            // It waits as long as for an engine that is slow.
            std::future::pending::<()>().await;
        }
    }

    /// Sends the request and waits for the first byte of its answer: until then another worker can still serve it.
    async fn forward(
        &self,
        dispatch: &Dispatch,
        body: Vec<Bytes>,
        (endpoint, rank): (&engine::Endpoint, Rank),
    ) -> Result<Begun, Failure> {
        let mut headers = dispatch.headers.clone();
        headers::set_rank(&mut headers, rank);
        headers::set_trace(&mut headers);
        let request =
            engine::Request { method: dispatch.method.clone(), path: dispatch.path.clone(), headers, body };
        let response = self.engine.forward(endpoint, request).await.map_err(Failure::Engine)?;
        let engine::Response { status, headers, mut body } = response;
        let first = loop {
            match body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => break Some(data),
                    Err(_) => break None,
                },
                Some(Err(error)) => return Err(Failure::Engine(error)),
                None => break None,
            }
        };
        let begun = Begun { status, headers, first, body };
        if matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE) {
            return Err(Failure::Unavailable(Box::new(begun)));
        }
        Ok(begun)
    }

    fn remember(
        &self,
        dispatch: &Dispatch,
        card: &Card,
        (decision, predicted): (Decision, Option<Predicted>),
    ) -> Arc<Record> {
        let holder = &decision.choice().holder;
        self.metrics.routed(holder.worker.as_str(), holder.rank.0, decision.reason.as_str());
        if let Some(predicted) = predicted {
            self.metrics.tokens("prompt", predicted.prompt_tokens);
            self.metrics.tokens("cached", predicted.cached_tokens);
        }
        let Draft { record, .. } = &dispatch.draft;
        let confidence = dispatch.draft.confidence_at(card);
        if let (Some(doubt), None) = (decision.choice().doubt, record.fallback) {
            self.metrics.fallback(doubt.as_str());
        }
        let record = Arc::new(record.placed(decision, (card.block_size, confidence), predicted));
        self.records.add(&record);
        record
    }
}

/// Makes the response to an answer that has begun.
fn relay(begun: Begun, ticket: Ticket, operator: bool) -> Response<Answer> {
    let events = is_event_stream(&begun.headers);
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = begun.status;
    *response.headers_mut() = begun.headers;
    if operator {
        headers::describe(response.headers_mut(), &ticket.record);
    }
    *response.body_mut() = Answer::streamed(Relay::new(begun.first, begun.body, ticket, events));
    response
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// Passes an answer of an engine that refused; nothing is reserved for it any more.
fn pass(begun: Begun, record: &Record, operator: bool) -> Response<Answer> {
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = begun.status;
    *response.headers_mut() = begun.headers;
    if operator {
        headers::describe(response.headers_mut(), record);
    }
    *response.body_mut() = match begun.first {
        Some(first) => Answer::streamed(crate::relay::Prefixed::new(first, begun.body)),
        None => Answer::streamed(begun.body),
    };
    response
}

/// How long a request waits for a busy worker, and in whose name.
pub(crate) fn waiting(wait_max: Duration, priority: i64, tenant: &str) -> Waiting {
    let priority = i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX });
    Waiting { wait_max, priority, tenant: actors::scheduler::session(tenant), weight: 1 }
}
