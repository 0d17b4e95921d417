//! Questions to an agent, or to another replica: one request, or a set pulled chunk by chunk.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use identity::{Holder, Incarnation};
use membership::replica::{Answer, Ask};
use ports::Bus;
use ports::bus::Message;
use wire::peer::Question;
use wire::sync::{Refusal, Request, Response, Snapshot};

use super::peers::Peers;

/// How long a whole question may take, a snapshot included.
pub(super) const DEADLINE: Duration = Duration::from_secs(25);
/// How long one request may take.
const REQUEST_DEADLINE: Duration = Duration::from_secs(1);
/// How often a chunk is asked for.
const CHUNK_TRIES: usize = 5;
/// Chunks under way at a time.
const WINDOW: usize = 4;

/// What came of a question.
#[derive(Debug)]
pub(super) enum Outcome {
    /// An answer, or `Failed`.
    Answer(Answer),
    /// The set, from another replica.
    FromPeer(Answer),
    /// The holder has more blocks than are fetched.
    TooManyBlocks,
}

/// Asks about one holder.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) holder: Holder,
    /// Where its agent answers.
    pub(super) subject: String,
    pub(super) peers: Arc<Peers>,
    pub(super) blocks_max: u64,
}

impl Asker {
    pub(super) async fn ask(self, ask: Ask) -> Outcome {
        let (life, request) = match ask {
            Ask::Peer { incarnation } => return self.ask_peer(incarnation).await,
            Ask::Range { incarnation, from } => (incarnation, Request::Range { incarnation, from }),
            Ask::Buckets { incarnation, digest } => (incarnation, Request::Buckets { incarnation, digest }),
            Ask::Snapshot { incarnation } => (incarnation, Request::Open { incarnation }),
            Ask::Digest { incarnation } => (incarnation, Request::Digest),
            Ask::Succeed { silent } => (silent, Request::Succeed { silent }),
        };
        let answer = match self.request(&self.subject, request.encode().ok()).await {
            Some(Response::Range { deltas }) => Answer::Range(deltas),
            Some(Response::Buckets { seq, digest, buckets, runs }) => {
                Answer::Buckets { seq, digest, buckets, runs }
            }
            Some(Response::Digest { incarnation, seq, digest }) if incarnation == life => {
                Answer::Digest { seq, digest }
            }
            Some(Response::Opened(snapshot)) if snapshot.blocks > self.blocks_max => {
                return Outcome::TooManyBlocks;
            }
            Some(Response::Opened(snapshot)) => {
                let chunk = |index| Request::Chunk { snapshot: snapshot.id, index }.encode().ok();
                self.pull(&self.subject, &snapshot, chunk).await.unwrap_or(Answer::Failed)
            }
            Some(
                Response::Refused(Refusal::Incarnation { present })
                | Response::Digest { incarnation: present, .. },
            ) => Answer::Incarnation(present),
            Some(Response::Refused(Refusal::Forgotten)) => Answer::Forgotten,
            Some(Response::Refused(Refusal::TooLarge)) => Answer::TooLarge,
            Some(Response::Refused(Refusal::NoSnapshot | Refusal::Busy))
            | Some(Response::Chunk { .. })
            | None => Answer::Failed,
        };
        Outcome::Answer(answer)
    }

    /// Asks another replica, if there is one; whatever does not work there is left to the agent.
    async fn ask_peer(self, incarnation: Incarnation) -> Outcome {
        let nobody = Outcome::Answer(Answer::NoPeer);
        let Some(subject) = self.peers.find().await else { return nobody };
        let question = Question::Open { holder: self.holder.clone(), incarnation };
        let snapshot = match self.request(&subject, question.encode().ok()).await {
            Some(Response::Opened(snapshot)) => snapshot,
            Some(Response::Refused(Refusal::Incarnation { present })) => {
                return Outcome::Answer(Answer::Incarnation(present));
            }
            Some(_) => return nobody,
            None => {
                self.peers.give_up().await;
                return nobody;
            }
        };
        if snapshot.blocks > self.blocks_max {
            return Outcome::TooManyBlocks;
        }
        let chunk = |index| Question::Chunk { snapshot: snapshot.id, index }.encode().ok();
        self.pull(&subject, &snapshot, chunk).await.map_or(nobody, Outcome::FromPeer)
    }

    /// Fetches all chunks of a copy, some at a time, in order.
    async fn pull(
        &self,
        subject: &str,
        snapshot: &Snapshot,
        question: impl Fn(u32) -> Option<Bytes>,
    ) -> Option<Answer> {
        let chunks = futures::stream::iter(0..snapshot.chunks);
        let chunks = chunks.map(|index| self.chunk(subject, question(index)));
        let mut keys = 0;
        let mut runs = Vec::new();
        let mut chunks = chunks.buffered(WINDOW);
        while let Some(chunk) = chunks.try_next().await.ok()? {
            keys += chunk.iter().map(|run| run.keys.len() as u64).sum::<u64>();
            if keys > snapshot.blocks {
                return None;
            }
            runs.extend(chunk);
        }
        Some(Answer::Snapshot { seq: snapshot.seq, digest: snapshot.digest.clone(), runs })
    }

    async fn chunk(&self, subject: &str, question: Option<Bytes>) -> Result<Vec<membership::Run>, ()> {
        for _ in 0..CHUNK_TRIES {
            match self.request(subject, question.clone()).await {
                Some(Response::Chunk { runs }) => return Ok(runs),
                Some(Response::Refused(_)) => return Err(()),
                Some(
                    Response::Range { .. }
                    | Response::Digest { .. }
                    | Response::Buckets { .. }
                    | Response::Opened(_),
                )
                | None => {}
            }
        }
        Err(())
    }

    async fn request(&self, subject: &str, payload: Option<Bytes>) -> Option<Response> {
        let message = Message { subject: subject.to_owned(), payload: payload?, ..Message::default() };
        match self.bus.request(message, REQUEST_DEADLINE).await {
            Ok(answer) => Response::decode(&answer.payload).ok(),
            Err(error) => {
                tracing::debug!(%error, subject, "question was not answered");
                None
            }
        }
    }
}
