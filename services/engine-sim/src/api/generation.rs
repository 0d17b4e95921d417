//! From prompts to running sequences, for chat and completions alike.

use http::HeaderMap;
use tokio::sync::mpsc;
use tracing::Span;

use super::{ApiError, Engine, Options};
use crate::block_hash::{BlockHash, Scope};
use crate::rank::{Chunk, Job, RankHandle};
use crate::reply::{Reply, ReplyLimits};
use crate::sequence::NewSequence;
use crate::stages::Stages;

/// Replies to one request: prompts times `n`.
const REPLIES_MAX: u32 = 512;

/// A prompt as the engine computes it.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// Tokens, media expanded.
    pub(crate) tokens: Vec<u32>,
    /// What its blocks depend on besides.
    pub(crate) scope: Scope,
    /// Whether it may start from cached blocks.
    pub(crate) read_cache: bool,
}

impl Prompt {
    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// Hashes the prompt's full blocks, and returns beside them a number that depends on all of the prompt.
    fn hashes(&self, block_size: u32) -> (Vec<BlockHash>, u64) {
        let mut hashes = Vec::with_capacity(self.tokens.len() / block_size as usize + 1);
        self.scope.extend_hashes(&mut hashes, &self.tokens, block_size);
        let last = hashes.last().copied().unwrap_or_else(BlockHash::root);
        let rest = self.tokens.get(hashes.len() * block_size as usize..).unwrap_or_default();
        let start = self.len() / block_size * block_size;
        let digest = self.scope.hash(&last, start, rest).low_u64();
        (hashes, digest)
    }
}

/// Replies on their way.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Their parts.
    pub(crate) chunks: mpsc::Receiver<Chunk>,
    /// How many there are: each prompt's `n`, prompt by prompt.
    pub(crate) replies: u32,
}

impl Engine {
    /// Returns the limits of a prompt's replies.
    ///
    /// # Errors
    /// When the prompt leaves no room for a reply.
    pub(crate) fn limits(
        &self,
        prompt: &Prompt,
        options: &Options,
        default: Option<u32>,
    ) -> Result<ReplyLimits, ApiError> {
        let room = self.max_model_len.saturating_sub(prompt.len());
        if room == 0 {
            return Err(ApiError::context_overflow(self.max_model_len));
        }
        Ok(options.limits(room, default, self.reply_tokens))
    }

    /// Starts all replies of a request on the rank that the headers ask for, else on the least busy one.
    pub(crate) fn generate(
        &self,
        prompts: Vec<(Prompt, ReplyLimits)>,
        options: &Options,
        headers: &HeaderMap,
        span: &Span,
    ) -> Result<Generation, ApiError> {
        let rank = self.rank(headers)?;
        let answers = options.answers();
        let replies = u32::try_from(prompts.len()).unwrap_or(u32::MAX).saturating_mul(answers);
        if replies > REPLIES_MAX {
            return Err(ApiError::bad(format!(
                "{replies} replies to one request are more than {REPLIES_MAX}"
            )));
        }
        let streamed: usize =
            prompts.iter().map(|(_, limits)| limits.tokens_max as usize * answers as usize).sum();
        let room = if options.streams() { streamed } else { replies as usize };
        let header = || Some(headers.get("x-session-id")?.to_str().ok()?.to_owned());
        let session_id = options.session_id.clone().or_else(header);
        let (sender, chunks) = mpsc::channel(room.max(1));
        let mut jobs = Vec::with_capacity(replies as usize);
        for (prompt, limits) in prompts {
            let (hashes, digest) = prompt.hashes(self.block_size);
            let seed = digest ^ options.seed.unwrap_or(0).cast_unsigned().rotate_left(32);
            for answer in 0..answers {
                let seed = seed.wrapping_add(u64::from(answer) << 40);
                let sequence = NewSequence {
                    prompt: prompt.tokens.clone(),
                    scope: prompt.scope.clone(),
                    hashes: hashes.clone(),
                    read_cache: prompt.read_cache,
                    reply: Reply::new(self.vocabulary.clone(), seed, limits.clone()),
                    session_id: session_id.clone(),
                };
                let index = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
                let stages = Stages::queued(span.clone());
                jobs.push(Job { sequence, index, stream: options.streams(), chunks: sender.clone(), stages });
            }
        }
        rank.submit(jobs).map_err(|refused| ApiError::overloaded(refused.to_string()))?;
        Ok(Generation { chunks, replies })
    }

    fn rank(&self, headers: &HeaderMap) -> Result<&RankHandle, ApiError> {
        let asked = headers
            .get("x-data-parallel-rank")
            .and_then(|value| value.to_str().ok()?.trim().parse::<i64>().ok());
        if let Some(asked) = asked {
            let rank = usize::try_from(asked).ok().and_then(|rank| self.ranks.get(rank));
            let size = self.ranks.len();
            return rank.ok_or_else(|| {
                ApiError::bad(format!("data_parallel_rank {asked} is out of range [0, {size})."))
            });
        }
        let load = |rank: &&RankHandle| {
            let state = rank.state();
            state.waiting * 4 + state.running
        };
        self.ranks.iter().min_by_key(load).ok_or_else(|| ApiError::overloaded("the engine has no rank"))
    }
}

impl Generation {
    /// Waits for all replies, in order.
    ///
    /// # Errors
    /// When the engine stops meanwhile.
    pub(crate) async fn finish(mut self) -> Result<Vec<Chunk>, ApiError> {
        let mut replies = vec![Chunk::default(); self.replies as usize];
        for _ in 0..self.replies {
            let chunk =
                self.chunks.recv().await.ok_or_else(|| ApiError::overloaded("the engine has stopped"))?;
            if let Some(reply) = replies.get_mut(chunk.index as usize) {
                *reply = chunk;
            }
        }
        Ok(replies)
    }
}
