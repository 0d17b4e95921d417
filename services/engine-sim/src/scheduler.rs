//! The pure scheduler of one rank: which tokens a step computes, and which blocks that takes and gives back.
//!
//! Continuous batching with chunked prefill, first come first served: running sequences first, then waiting ones
//! while the token budget, the sequence limit and the pool allow. A sequence that cannot get a block for its next
//! token preempts the one admitted last, which starts again later and finds what is left of its blocks in the cache.

use std::collections::VecDeque;

use crate::kv_cache::KvCache;
use crate::kv_event::KvEvent;
use crate::reply::{Emission, Finish};
use crate::sequence::{NewSequence, Sequence, SequenceId};

/// Sizes that a rank is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Tokens of a KV block; at least 1.
    pub(crate) block_size: u32,
    /// Blocks that sequences can use.
    pub(crate) blocks: u32,
    /// Sequences computed together.
    pub(crate) running_max: u32,
    /// Tokens computed in one step.
    pub(crate) step_tokens_max: u32,
    /// Media tokens whose encoder output is kept.
    pub(crate) encoder_tokens_max: u32,
}

/// The work of one step, for the time model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Prompt tokens to compute.
    pub(crate) prefill_tokens: u32,
    /// Media tokens to encode.
    pub(crate) encode_tokens: u32,
    /// Sequences that compute one generated token.
    pub(crate) decodes: u32,
}

/// A token that a step produced.
#[derive(Debug)]
pub(crate) struct Output {
    /// Whose token it is.
    pub(crate) id: SequenceId,
    /// Prefix tokens that the sequence found cached.
    pub(crate) cached_tokens: u32,
    /// The token itself, and whether it is the last.
    pub(crate) emission: Emission,
}

/// Running totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Sequences put back for want of blocks.
    pub(crate) preemptions: u64,
    /// Tokens looked up in the prefix cache.
    pub(crate) prefix_queries: u64,
    /// Tokens found there.
    pub(crate) prefix_hits: u64,
    /// Prompt tokens of sequences that gave their first token.
    pub(crate) prompt_tokens: u64,
    /// Of these, tokens that came from the cache.
    pub(crate) prompt_tokens_cached: u64,
    /// Tokens generated.
    pub(crate) generation_tokens: u64,
    /// Media items encoded.
    pub(crate) encoded_items: u64,
    /// Their tokens.
    pub(crate) encoded_tokens: u64,
    /// Sequences that ended by themselves or at a stop condition.
    pub(crate) stopped: u64,
    /// Sequences that ended at their token limit.
    pub(crate) cut: u64,
    /// Sequences dropped because nobody waits for them any more.
    pub(crate) aborted: u64,
}

/// All sequences of a rank and the blocks they hold.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    cache: KvCache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    /// Admitted by steps since they were last taken.
    admitted: Vec<SequenceId>,
}

impl Scheduler {
    /// Creates an idle scheduler.
    #[must_use]
    pub(crate) fn new(limits: Limits) -> Self {
        let cache = KvCache::new(&limits);
        Self { limits, cache, waiting: VecDeque::new(), running: Vec::new(), admitted: Vec::new() }
    }

    /// Queues a sequence. Its prompt and reply must fit the pool; the caller has checked the context length.
    pub(crate) fn submit(&mut self, id: SequenceId, new: NewSequence) {
        self.waiting.push_back(Sequence::new(id, new, self.limits.block_size));
    }

    /// Says whether there is nothing to compute.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Returns how many sequences hold blocks.
    #[must_use]
    pub(crate) const fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns how many sequences wait for blocks or for a place.
    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the share of the pool that sequences use, 0 to 1.
    #[must_use]
    pub(crate) fn usage(&self) -> f64 {
        let pool = &self.cache.pool;
        1.0 - f64::from(pool.free_blocks()) / f64::from(pool.capacity().max(1))
    }

    /// Returns the totals so far.
    #[must_use]
    pub(crate) const fn totals(&self) -> &Totals {
        &self.cache.totals
    }

    /// Takes the sequences that were admitted since the last call.
    pub(crate) fn take_admitted(&mut self) -> Vec<SequenceId> {
        std::mem::take(&mut self.admitted)
    }

    /// Takes the events of the steps since the last call, oldest first.
    pub(crate) fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.cache.events)
    }

    /// Drops the sequences that `gone` names and frees their blocks.
    pub(crate) fn abort(&mut self, mut gone: impl FnMut(SequenceId) -> bool) {
        let cache = &mut self.cache;
        let mut keep = |sequence: &mut Sequence| {
            let gone = gone(sequence.id);
            if gone {
                cache.release(sequence);
                cache.totals.aborted += 1;
            }
            !gone
        };
        self.running.retain_mut(&mut keep);
        self.waiting.retain_mut(&mut keep);
    }

    /// Forgets all cached blocks, which the next batch of events will tell; `false` while blocks are in use.
    pub(crate) fn reset_prefix_cache(&mut self) -> bool {
        let reset = self.cache.pool.reset();
        if reset {
            self.cache.events.push(KvEvent::Cleared);
        }
        reset
    }

    /// Forgets all encoder outputs.
    pub(crate) fn reset_encoder_cache(&mut self) {
        self.cache.encoder.clear();
    }

    /// Decides what the next step computes and takes the blocks for it.
    pub(crate) fn schedule(&mut self) -> Work {
        let mut work = Work::default();
        let mut budget = self.limits.step_tokens_max;
        let preempted = self.schedule_running(&mut budget, &mut work);
        if !preempted {
            self.schedule_waiting(&mut budget, &mut work);
        }
        work
    }

    /// Ends the step: progress becomes real, sequences that have caught up give a token, finished ones leave.
    pub(crate) fn complete(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        let cache = &mut self.cache;
        self.running.retain_mut(|sequence| {
            let scheduled = std::mem::take(&mut sequence.scheduled);
            sequence.computed += scheduled;
            if scheduled == 0 || !sequence.caught_up() {
                return true;
            }
            let cached_tokens = sequence.cached_tokens.unwrap_or(0);
            if sequence.len() == sequence.prompt_len {
                cache.totals.prompt_tokens += u64::from(sequence.prompt_len);
                cache.totals.prompt_tokens_cached += u64::from(cached_tokens);
            }
            let emission = sequence.extend();
            cache.totals.generation_tokens += 1;
            let finished = emission.finish.is_some();
            match &emission.finish {
                None => {}
                Some(Finish::Length) => cache.totals.cut += 1,
                Some(Finish::Stop | Finish::StopToken(_) | Finish::StopText(_)) => cache.totals.stopped += 1,
            }
            outputs.push(Output { id: sequence.id, cached_tokens, emission });
            if finished {
                cache.release(sequence);
            }
            !finished
        });
        outputs
    }

    /// Returns whether a sequence was preempted: then nothing may be admitted in this step.
    fn schedule_running(&mut self, budget: &mut u32, work: &mut Work) -> bool {
        let mut preempted = false;
        let mut index = 0;
        while *budget > 0
            && let Some(sequence) = self.running.get_mut(index)
        {
            let tokens = sequence.len().saturating_sub(sequence.computed).min(*budget);
            if self.cache.has_room(sequence, tokens) {
                self.cache.assign(sequence, tokens, work);
                *budget -= tokens;
                index += 1;
            } else if let Some(mut last) = self.running.pop() {
                self.cache.release(&mut last);
                self.cache.totals.preemptions += 1;
                self.waiting.push_front(last);
                preempted = true;
            }
        }
        preempted
    }

    fn schedule_waiting(&mut self, budget: &mut u32, work: &mut Work) {
        while *budget > 0
            && self.running.len() < self.limits.running_max as usize
            && let Some(mut sequence) = self.waiting.pop_front()
        {
            if !self.cache.admit(&mut sequence) {
                self.waiting.push_front(sequence);
                return;
            }
            let tokens = (sequence.len() - sequence.computed).min(*budget);
            self.cache.assign(&mut sequence, tokens, work);
            *budget -= tokens;
            self.admitted.push(sequence.id);
            self.running.push(sequence);
        }
    }
}

#[cfg(test)]
mod tests;
