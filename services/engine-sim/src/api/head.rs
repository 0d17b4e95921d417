//! What all parts of an answer have alike, whole or streamed, to a chat or a completion.

use std::sync::Arc;

use http::HeaderMap;

use super::Engine;
use super::usage::{PromptCount, Usage};
use crate::rank::Chunk;
use crate::wall_clock;

/// Whose answer it is, and to what.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) engine: Arc<Engine>,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) count: PromptCount,
}

impl Head {
    /// Names an answer that begins now; its id begins with `kind`.
    pub(super) fn new(engine: &Arc<Engine>, kind: &str, headers: &HeaderMap, count: PromptCount) -> Self {
        Self {
            engine: Arc::clone(engine),
            id: engine.request_id(kind, headers),
            created: wall_clock::now().as_secs(),
            count,
        }
    }

    /// Composes the `usage` of an answer that isn't streamed.
    pub(super) fn usage(&self, replies: &[Chunk]) -> Usage {
        let completion_tokens = replies.iter().map(|reply| reply.tokens.len()).sum::<usize>();
        let cached = replies.last().map_or(0, |reply| reply.cached_tokens);
        self.count.usage(cached, u32::try_from(completion_tokens).unwrap_or(u32::MAX))
    }
}
