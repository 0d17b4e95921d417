//! Questions to an agent: one request, or a snapshot pulled chunk by chunk.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use membership::replica::{Answer, Ask};
use ports::Bus;
use ports::bus::Message;
use wire::sync::{Refusal, Request, Response, Snapshot};

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
    /// The holder has more blocks than are fetched.
    TooManyBlocks,
}

/// Asks one agent.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) bus: Arc<dyn Bus>,
    pub(super) subject: String,
    pub(super) blocks_max: u64,
}

impl Asker {
    pub(super) async fn ask(self, ask: Ask) -> Outcome {
        let request = match ask {
            Ask::Range { incarnation, from } => Request::Range { incarnation, from },
            Ask::Buckets { incarnation, digest } => Request::Buckets { incarnation, digest },
            Ask::Snapshot { incarnation } => Request::Open { incarnation },
        };
        let answer = match self.request(&request).await {
            Some(Response::Range { deltas }) => Answer::Range(deltas),
            Some(Response::Buckets { seq, digest, buckets, runs }) => {
                Answer::Buckets { seq, digest, buckets, runs }
            }
            Some(Response::Opened(snapshot)) if snapshot.blocks > self.blocks_max => {
                return Outcome::TooManyBlocks;
            }
            Some(Response::Opened(snapshot)) => self.pull(snapshot).await.unwrap_or(Answer::Failed),
            Some(Response::Refused(Refusal::Incarnation { present })) => Answer::Incarnation(present),
            Some(Response::Refused(Refusal::Forgotten)) => Answer::Forgotten,
            Some(Response::Refused(Refusal::TooLarge)) => Answer::TooLarge,
            Some(Response::Refused(Refusal::NoSnapshot | Refusal::Busy))
            | Some(Response::Digest { .. } | Response::Chunk { .. })
            | None => Answer::Failed,
        };
        Outcome::Answer(answer)
    }

    /// Fetches all chunks of a copy, some at a time, in order.
    async fn pull(&self, snapshot: Snapshot) -> Option<Answer> {
        let chunks = futures::stream::iter(0..snapshot.chunks).map(|index| self.chunk(snapshot.id, index));
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
        Some(Answer::Snapshot { seq: snapshot.seq, digest: snapshot.digest, runs })
    }

    async fn chunk(&self, snapshot: u64, index: u32) -> Result<Vec<membership::Run>, ()> {
        for _ in 0..CHUNK_TRIES {
            match self.request(&Request::Chunk { snapshot, index }).await {
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

    async fn request(&self, request: &Request) -> Option<Response> {
        let payload = request.encode().ok()?;
        let message = Message { subject: self.subject.clone(), payload, ..Message::default() };
        match self.bus.request(message, REQUEST_DEADLINE).await {
            Ok(answer) => Response::decode(&answer.payload).ok(),
            Err(error) => {
                tracing::debug!(%error, "agent did not answer");
                None
            }
        }
    }
}
