//! Predicted milliseconds.
//!
//! ```text
//! cost = queue    prompt and media tokens ahead of it, but for those that it shares
//!      + fetch    bytes of media not near
//!      + encode   media tokens neither near nor inside cached blocks
//!      + prefill  prompt tokens not in KV
//!      + decode   active sequences
//!      + pressure a KV cache nearly full: work done again, for preempted requests and evicted blocks
//! ```

use crate::candidate::Candidate;
use crate::wanted::{Wanted, cached_tokens};

/// Share of the KV cache in use from which preemption becomes likely.
const PRESSURE_FROM: f64 = 0.9;

/// Share of evicted blocks that are taken to be wanted again.
const EVICTED_WANTED: f64 = 0.25;

/// How many times over the whole prompt may be charged for pressure.
const PRESSURE_MAX: f64 = 10.0;

/// What a request is predicted to cost on a holder, in milliseconds; no term is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostMs {
    /// For work that is ahead of it and of which it has no part.
    pub queue: f64,
    /// For media not near.
    pub fetch: f64,
    /// For media not resident.
    pub encode: f64,
    /// For prompt tokens not in KV.
    pub prefill: f64,
    /// For active sequences.
    pub decode: f64,
    /// For a KV cache nearly full.
    pub pressure: f64,
}

impl CostMs {
    /// Sums the terms.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.queue + self.fetch + self.encode + self.prefill + self.decode + self.pressure
    }
}

/// A request's work on one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prompt blocks it has or will have.
    pub cached_blocks: u32,
    /// Prompt tokens that its engine is predicted to take from its cache.
    pub cached_tokens: u32,
    /// Prompt tokens to compute.
    pub prefill_tokens: u32,
    /// Media tokens to encode.
    pub encode_tokens: u32,
    /// Blocks the prompt occupies.
    pub prompt_blocks: u32,
}

impl Work {
    /// Weighs a request for a candidate.
    #[must_use]
    pub fn of(wanted: &Wanted<'_>, candidate: &Candidate<'_>) -> Self {
        let routing = wanted.routing;
        let size = candidate.block_size.max(1);
        let usable = routing.prompt_tokens.saturating_sub(1) / size;
        let cached_blocks = candidate.blocks(wanted).min(usable);
        let cached_tokens = cached_tokens(cached_blocks, routing.prompt_tokens, size);
        let prefill_tokens = routing.prompt_tokens - cached_tokens;
        let far =
            routing.mm_routing_info.total_image_tokens.saturating_sub(candidate.near(wanted.policy).tokens);
        Self {
            cached_blocks,
            cached_tokens,
            prefill_tokens,
            encode_tokens: far.min(prefill_tokens),
            prompt_blocks: routing.prompt_tokens.div_ceil(size),
        }
    }
}

/// Predicts the cost of a request's work on a candidate.
#[must_use]
pub fn cost(wanted: &Wanted<'_>, candidate: &Candidate<'_>, work: &Work) -> CostMs {
    let (rates, load) = (&candidate.rates, &candidate.load);
    let media = wanted.routing.mm_routing_info.total_image_tokens;
    let far_tokens = media.saturating_sub(candidate.near(wanted.policy).tokens);
    let far_share = f64::from(far_tokens) / f64::from(media.max(1));
    let whole_prompt = f64::from(wanted.routing.prompt_tokens) * rates.prefill_ms;
    CostMs {
        queue: queue(wanted, candidate, work),
        fetch: wanted.media_bytes as f64 * far_share * rates.fetch_ms,
        encode: f64::from(work.encode_tokens) * rates.encode_ms,
        prefill: f64::from(work.prefill_tokens) * rates.prefill_ms,
        decode: f64::from(load.active) * rates.decode_ms,
        pressure: overshoot(candidate, work) * whole_prompt
            + evicted_tokens(candidate, work) * rates.prefill_ms,
    }
}

/// Work ahead that brings blocks or media this request needs as well is charged to the request that began it. The second
/// of two requests for one new image then follows the first instead of having it encoded again elsewhere in the same
/// time; once enough requests follow that their own work outweighs it, one more holder is given it.
fn queue(wanted: &Wanted<'_>, candidate: &Candidate<'_>, work: &Work) -> f64 {
    let shared_blocks =
        candidate.computing_blocks.min(work.cached_blocks.saturating_sub(candidate.matched_blocks));
    let shared_tokens = u64::from(shared_blocks) * u64::from(candidate.block_size);
    let shared_media = u64::from(candidate.near(wanted.policy).coming_tokens);
    let prefill_tokens = candidate.load.prefill_tokens.saturating_sub(shared_tokens);
    let media_tokens = candidate.load.media_tokens.saturating_sub(shared_media);
    prefill_tokens as f64 * candidate.rates.prefill_ms + media_tokens as f64 * candidate.rates.encode_ms
}

/// How far the request would push the cache into the range where others are preempted.
fn overshoot(candidate: &Candidate<'_>, work: &Work) -> f64 {
    let blocks = candidate.limits.kv_blocks;
    if blocks == 0 {
        return 0.0;
    }
    let blocks = f64::from(blocks);
    let used = candidate.load.kv_usage.clamp(0.0, 1.0).max(candidate.load.decode_blocks as f64 / blocks);
    let needed = f64::from(work.prompt_blocks.saturating_sub(work.cached_blocks)) / blocks;
    let over = (used + needed - PRESSURE_FROM) / (1.0 - PRESSURE_FROM);
    over.clamp(0.0, PRESSURE_MAX)
}

/// Prompt tokens of others that would have to be computed again because the request's blocks take their place.
fn evicted_tokens(candidate: &Candidate<'_>, work: &Work) -> f64 {
    let capacity = u64::from(candidate.limits.kv_blocks);
    if capacity == 0 {
        return 0.0;
    }
    let fresh = u64::from(work.prompt_blocks.saturating_sub(work.cached_blocks));
    let evicted = (candidate.load.cached_blocks + fresh).saturating_sub(capacity).min(fresh);
    (evicted * u64::from(candidate.block_size)) as f64 * EVICTED_WANTED
}
