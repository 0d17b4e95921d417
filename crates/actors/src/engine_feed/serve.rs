//! The actor's side towards replicas: beats, questions, copies.

use std::sync::Arc;

use actor_kit::{Failed, Full};
use bytes::Bytes;
use identity::Incarnation;
use ports::bus::{self, Message, Received, Subscription};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::Instrument as _;
use wire::sync::{Refusal, Request, Response, Snapshot};

use super::answers::{self, Answer};
use super::life::next_life;
use super::session::Session;
use super::{
    COPY_DEADLINE, COPY_WAITERS_MAX, Cut, Msg, PUBLISH_DEADLINE, QUESTIONS_MAX, SUBSCRIBE_DEADLINE, State,
    copies,
};

impl State {
    pub(super) async fn beat(&mut self) -> Result<(), Full> {
        self.poll()?;
        let Some(session) = self.session.as_ref().filter(|session| session.is_caught_up()) else {
            return Ok(());
        };
        let beat = self.outlook.beat(&self.args.model, &self.args.holder, session);
        if let Ok(payload) = wire::kv::encode_beat(&beat) {
            self.publish(self.subject.clone(), payload).await;
        }
        // An agent that comes back goes on in the life that it kept: that cannot wait.
        if self.saved.map(|(life, ..)| life) != self.session.as_ref().map(Session::incarnation) {
            self.save()?;
        }
        Ok(())
    }

    /// Publishes what has come of the last message, in order.
    pub(super) async fn publish_deltas(&mut self) {
        let deltas = self.session.as_mut().map(Session::outbox).unwrap_or_default();
        for delta in deltas {
            match wire::kv::encode_delta(&delta) {
                Ok(payload) => self.publish(self.subject.clone(), payload).await,
                Err(error) => {
                    tracing::error!(worker = %self.args.holder.worker, %error, "delta cannot be encoded");
                }
            }
        }
    }

    /// Publishes, as far as the bus can: what gets lost shows in beats and is repaired.
    pub(super) async fn publish(&mut self, subject: String, payload: Bytes) {
        let message = Message { subject, payload, ..Message::default() };
        if let Ok(Err(error)) = timeout(PUBLISH_DEADLINE, self.args.bus.publish(message)).await {
            tracing::debug!(worker = %self.args.holder.worker, %error, "message was not published");
        }
    }

    pub(super) fn subscribe(&mut self) -> Result<(), Full> {
        let bus = Arc::clone(&self.args.bus);
        let subject = wire::subject::sync(&self.args.namespace, &self.args.model, &self.args.holder);
        let work = async move { bus.subscribe(&subject, QUESTIONS_MAX).await };
        let done =
            |outcome: Result<_, Failed>| Msg::Subscribed(outcome.unwrap_or(Err(bus::Error::Disconnected)));
        self.children.run(SUBSCRIBE_DEADLINE, work, done).map(drop)
    }

    pub(super) fn hear(&mut self, mut subscription: Box<dyn Subscription>) -> Result<(), Full> {
        let work = async move { subscription.next().await.map(|received| (subscription, received)) };
        let ended = |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((subscription, received))) => Msg::Asked(subscription, received),
            Ok(None) | Err(_) => Msg::Unsubscribed,
        };
        self.children.pump(work, ended).map(drop)
    }

    pub(super) async fn asked(&mut self, received: Received) -> Result<(), Full> {
        let Received::Message(message) = received else { return Ok(()) };
        let (Some(reply), Ok(request)) = (&message.reply, Request::decode(&message.payload)) else {
            return Ok(());
        };
        let span = tracing::debug_span!("sync", worker = %self.args.holder.worker, question = request.name());
        self.args.bus.join_trace(&span, &message);
        self.answer(reply.clone(), &request).instrument(span).await
    }

    async fn answer(&mut self, reply: String, request: &Request) -> Result<(), Full> {
        if let Request::Succeed { silent } = request {
            self.succeed(*silent);
        }
        let present = self.session.as_ref().map(Session::incarnation);
        if request.life().zip(present).is_some_and(|(asked, present)| asked > present) {
            // Another agent speaks of the later life, and answers.
            return Ok(());
        }
        if let Request::Succeed { silent } = request
            && present.is_none_or(|present| present <= *silent)
        {
            // Only a later life is an answer: this agent may be the one that asks.
            return Ok(());
        }
        let answer = match &self.session {
            Some(session) => answers::answer(request, session, &mut self.copies, self.args.clock.now()),
            None => answers::refuse(Refusal::Busy),
        };
        match answer {
            Ok(Answer::Now(payload)) => self.publish(reply, payload).await,
            Ok(Answer::AfterCopy) => self.copy(reply).await?,
            Err(error) => {
                tracing::error!(worker = %self.args.holder.worker, %error, "answer cannot be encoded");
            }
        }
        Ok(())
    }

    /// Goes on as a later life than one whose agent has fallen silent: replicas never go back to an earlier one.
    pub(super) fn succeed(&mut self, silent: Incarnation) {
        let Some(session) = self.session.as_mut().filter(|session| session.incarnation() < silent) else {
            return;
        };
        let args = &self.args;
        let life = next_life(Some(silent), session.engine_started_ms(), args.clock.wall_ms(), args.seed);
        tracing::info!(worker = %args.holder.worker, incarnation = %life, %silent, "another agent spoke and is gone, succeeding it");
        session.succeed(life);
        self.copies.clear();
    }

    async fn copy(&mut self, reply: String) -> Result<(), Full> {
        let Some(session) = &self.session else { return Ok(()) };
        if self.copy_waiters.len() >= COPY_WAITERS_MAX {
            if let Ok(Answer::Now(payload)) = answers::refuse(Refusal::Busy) {
                self.publish(reply, payload).await;
            }
            return Ok(());
        }
        self.copy_waiters.push(reply);
        if self.copy_waiters.len() > 1 {
            return Ok(());
        }
        self.copies_made += 1;
        let snapshot = Snapshot {
            id: self.args.clock.wall_ms() << 16 | (self.copies_made & 0xffff),
            seq: session.seq(),
            digest: session.digest().clone(),
            blocks: session.translator().blocks(),
            chunks: 0,
        };
        let (keys, incarnation) = (session.translator().copy(), session.incarnation());
        let work = async move {
            let cut = spawn_blocking(move || copies::cut(snapshot, keys.into_runs()));
            cut.await.unwrap_or(Err(Refusal::Busy))
        };
        let done = move |outcome: Result<Cut, Failed>| {
            Msg::Copied(incarnation, outcome.unwrap_or(Err(Refusal::Busy)))
        };
        self.children.run(COPY_DEADLINE, work, done).map(drop)
    }

    pub(super) async fn copied(&mut self, incarnation: Incarnation, cut: Cut) {
        let present = self.session.as_ref().map(Session::incarnation);
        let response = match cut {
            Ok((snapshot, chunks)) if present == Some(incarnation) => {
                self.copies.keep(snapshot.clone(), chunks, self.args.clock.now());
                Response::Opened(snapshot)
            }
            Ok(_) => Response::Refused(Refusal::Busy),
            Err(refusal) => Response::Refused(refusal),
        };
        let waiters = std::mem::take(&mut self.copy_waiters);
        if let Ok(payload) = response.encode() {
            for reply in waiters {
                self.publish(reply, payload.clone()).await;
            }
        }
    }
}
