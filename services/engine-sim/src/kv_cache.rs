//! What sequences compute into and out of: the block pool, the encoder cache, and the events about the former.

use crate::block_pool::{BlockId, BlockPool};
use crate::encoder_cache::EncoderCache;
use crate::kv_event::KvEvent;
use crate::scheduler::{Limits, Totals, Work};
use crate::sequence::Sequence;

/// The caches of one rank.
#[derive(Debug)]
pub(crate) struct KvCache {
    pub(crate) block_size: u32,
    pub(crate) pool: BlockPool,
    pub(crate) encoder: EncoderCache,
    pub(crate) events: Vec<KvEvent>,
    pub(crate) totals: Totals,
}

impl KvCache {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            block_size: limits.block_size,
            pool: BlockPool::new(limits.blocks),
            encoder: EncoderCache::new(limits.encoder_tokens_max),
            events: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Lets a waiting sequence start from the blocks that are cached, if the pool can hold the rest of it too.
    pub(crate) fn admit(&mut self, sequence: &mut Sequence) -> bool {
        let hits = self.longest_prefix(sequence);
        let hits_free = hits.iter().filter(|&&id| !self.pool.in_use(id)).count();
        let missing = sequence.blocks_missing(sequence.len()) as usize - hits.len();
        if missing + hits_free > self.pool.free_blocks() as usize {
            return false;
        }
        hits.iter().for_each(|&id| self.pool.retain(id));
        let blocks = u32::try_from(hits.len()).unwrap_or(u32::MAX);
        let tokens = blocks * self.block_size;
        sequence.blocks = hits;
        sequence.registered = blocks;
        sequence.computed = tokens;
        sequence.encoded = sequence.scope.media.partition_point(|item| item.end() <= tokens);
        if sequence.read_cache {
            self.totals.prefix_queries += u64::from(sequence.len());
            self.totals.prefix_hits += u64::from(tokens);
        }
        sequence.cached_tokens.get_or_insert(tokens);
        true
    }

    /// Says whether the pool has the blocks for `tokens` more tokens of a sequence.
    pub(crate) fn has_room(&self, sequence: &Sequence, tokens: u32) -> bool {
        sequence.blocks_missing(sequence.computed + tokens) <= self.pool.free_blocks()
    }

    /// Gives a sequence `tokens` tokens of this step, the blocks for them, and registers what they fill.
    pub(crate) fn assign(&mut self, sequence: &mut Sequence, tokens: u32, work: &mut Work) {
        let upto = sequence.computed + tokens;
        for _ in 0..sequence.blocks_missing(upto) {
            let Some((id, evicted)) = self.pool.allocate() else { break };
            self.events.extend(evicted.map(KvEvent::Removed));
            sequence.blocks.push(id);
        }
        self.register_full_blocks(sequence, upto);
        work.encode_tokens += self.encode(sequence, upto);
        if sequence.computed >= sequence.prompt_len {
            work.decodes += 1;
        } else {
            work.prefill_tokens += tokens;
        }
        sequence.scheduled = tokens;
    }

    /// Takes all blocks from a sequence, which forgets its progress; its tail becomes the first to be evicted.
    pub(crate) fn release(&mut self, sequence: &mut Sequence) {
        self.pool.release(sequence.restart().into_iter().rev());
    }

    /// Finds the cached blocks a sequence can start from. The last token is always computed.
    fn longest_prefix(&self, sequence: &Sequence) -> Vec<BlockId> {
        if !sequence.read_cache {
            return Vec::new();
        }
        let most = sequence.len().saturating_sub(1) / self.block_size;
        sequence.hashes.iter().take(most as usize).map_while(|hash| self.pool.lookup(hash)).collect()
    }

    fn register_full_blocks(&mut self, sequence: &mut Sequence, upto: u32) {
        let (from, to) = (sequence.registered, upto / self.block_size);
        if from >= to {
            return;
        }
        let new = sequence.blocks.iter().zip(&sequence.hashes).take(to as usize).skip(from as usize);
        for (&id, &hash) in new {
            self.pool.cache(id, hash);
        }
        self.events.push(KvEvent::Stored(sequence.stored(from, to)));
        sequence.registered = to;
    }

    /// Returns the media tokens that have to be encoded before the first `upto` tokens can be computed.
    fn encode(&mut self, sequence: &mut Sequence, upto: u32) -> u32 {
        let mut tokens = 0;
        while let Some(item) = sequence.scope.media.get(sequence.encoded).filter(|item| item.offset < upto) {
            if self.encoder.insert(&item.identity, item.len) {
                self.totals.encoded_items += 1;
                self.totals.encoded_tokens += u64::from(item.len);
                tokens += item.len;
            }
            sequence.encoded += 1;
        }
        tokens
    }
}
