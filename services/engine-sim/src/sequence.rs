//! One prompt on its way through a rank: tokens, block hashes, the blocks it holds.

use crate::block_hash::{BlockHash, Scope};
use crate::block_pool::BlockId;
use crate::kv_event::Stored;
use crate::reply::{Emission, Reply};

/// Names a sequence within its rank.
pub(crate) type SequenceId = u64;

/// A sequence as it is handed to a rank.
#[derive(Debug)]
pub(crate) struct NewSequence {
    /// Prompt tokens with media expanded; at least one.
    pub(crate) prompt: Vec<u32>,
    /// What else its blocks depend on.
    pub(crate) scope: Scope,
    /// Hashes of the prompt's full blocks, or of the first ones: the rest is computed.
    pub(crate) hashes: Vec<BlockHash>,
    /// Whether cached blocks may be reused; `prompt_logprobs` forbids it.
    pub(crate) read_cache: bool,
    /// Source of the generated tokens.
    pub(crate) reply: Reply,
    /// Echoed in events.
    pub(crate) session_id: Option<String>,
}

/// A sequence inside the scheduler.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    pub(crate) scope: Scope,
    pub(crate) read_cache: bool,
    /// Prompt, then what was generated.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: u32,
    /// One for each full block of `tokens`.
    pub(crate) hashes: Vec<BlockHash>,
    /// Blocks held, in prompt order.
    pub(crate) blocks: Vec<BlockId>,
    /// Tokens whose KV exists once the current step has run.
    pub(crate) computed: u32,
    /// Leading blocks that are registered for prefix lookup.
    pub(crate) registered: u32,
    /// Tokens of the step that is being run.
    pub(crate) scheduled: u32,
    /// Prefix tokens found at first admission; later ones, after a preemption, don't count, as in vLLM.
    pub(crate) cached_tokens: Option<u32>,
    /// Leading media items whose encoder output this sequence has.
    pub(crate) encoded: usize,
    block_size: u32,
    reply: Reply,
    session_id: Option<String>,
}

impl Sequence {
    pub(crate) fn new(id: SequenceId, new: NewSequence, block_size: u32) -> Self {
        let prompt_len = u32::try_from(new.prompt.len()).unwrap_or(u32::MAX);
        let mut hashes = new.hashes;
        new.scope.extend_hashes(&mut hashes, &new.prompt, block_size);
        Self {
            id,
            scope: new.scope,
            read_cache: new.read_cache,
            tokens: new.prompt,
            prompt_len,
            hashes,
            blocks: Vec::new(),
            computed: 0,
            registered: 0,
            scheduled: 0,
            cached_tokens: None,
            encoded: 0,
            block_size,
            reply: new.reply,
            session_id: new.session_id,
        }
    }

    /// Returns the number of tokens so far.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// Returns how many more blocks the first `tokens` tokens need.
    pub(crate) fn blocks_missing(&self, tokens: u32) -> u32 {
        let held = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        tokens.div_ceil(self.block_size).saturating_sub(held)
    }

    /// Says whether every token before the next one to generate has been computed.
    pub(crate) fn caught_up(&self) -> bool {
        self.computed == self.len()
    }

    /// Generates and appends the next token.
    pub(crate) fn extend(&mut self) -> Emission {
        let emission = self.reply.next_token();
        self.tokens.push(emission.token);
        self.scope.extend_hashes(&mut self.hashes, &self.tokens, self.block_size);
        emission
    }

    /// Forgets all progress but the tokens; the caller has taken the blocks.
    pub(crate) fn restart(&mut self) -> Vec<BlockId> {
        self.computed = 0;
        self.registered = 0;
        self.scheduled = 0;
        self.encoded = 0;
        std::mem::take(&mut self.blocks)
    }

    /// Describes the blocks `[from, to)` as newly stored ones.
    pub(crate) fn stored(&self, from: u32, to: u32) -> Stored {
        let blocks = from as usize..to as usize;
        let tokens = blocks.start * self.block_size as usize..blocks.end * self.block_size as usize;
        let parent = blocks.start.checked_sub(1).and_then(|before| self.hashes.get(before)).copied();
        Stored {
            parent,
            hashes: self.hashes.get(blocks).unwrap_or_default().to_vec(),
            tokens: self.tokens.get(tokens).unwrap_or_default().to_vec(),
            extra_keys: (from..to)
                .map(|block| self.scope.extra_keys(block * self.block_size, (block + 1) * self.block_size))
                .collect(),
            session_id: self.session_id.clone(),
        }
    }
}
