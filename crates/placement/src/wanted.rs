//! What is asked of placement.

use identity::{MediaKey, Rank, WorkerId};

use crate::policy::Policy;
use crate::request::RoutingRequest;

/// One question to placement: a request and the circumstances it comes with.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The request.
    pub routing: &'a RoutingRequest,
    /// How to choose among feasible holders.
    pub policy: Policy,
    /// The one worker (and rank) that may serve it.
    pub direct: Option<(&'a WorkerId, Option<Rank>)>,
    /// Hash of the session the request belongs to.
    pub session: Option<u64>,
    /// The `LoRA` adapter it runs on; empty for none.
    pub adapter: &'a str,
    /// Workers that must not serve it, such as those it failed on.
    pub excluded: &'a [WorkerId],
    /// Media that come without payload: only holders where all are resident can serve it.
    pub payload_free: &'a [MediaKey],
    /// Sum of the media's sizes, in bytes; zero when unknown.
    pub media_bytes: u64,
    /// Index of the first media token in the prompt; none for a text prompt.
    pub first_media_token: Option<u32>,
}

impl<'a> Wanted<'a> {
    /// Asks for a request to be placed by policy, without further circumstances.
    #[must_use]
    pub const fn new(routing: &'a RoutingRequest, policy: Policy) -> Self {
        Self {
            routing,
            policy,
            direct: None,
            session: None,
            adapter: "",
            excluded: &[],
            payload_free: &[],
            media_bytes: 0,
            first_media_token: None,
        }
    }

    /// Blocks before the first media token, where the policy sees text only.
    pub(crate) fn blocks_max(&self, block_size: u32) -> u32 {
        match (self.policy, self.first_media_token) {
            (Policy::KvText, Some(first)) => first / block_size.max(1),
            _ => u32::MAX,
        }
    }

    /// A number that names the request's media, alike on every frontend; none for a text prompt.
    pub(crate) fn media_subject(&self) -> Option<u64> {
        let media = &self.routing.mm_routing_info.image_multiset;
        let (first, rest) = media.split_first()?;
        Some(rest.iter().fold(first.0.get(), |subject, (key, _)| subject.rotate_left(7) ^ key.get()))
    }
}

/// Predicts how many prompt tokens an engine takes from its cache: it computes at least the last token, and caches
/// whole blocks (vLLM, `KVCacheManager.get_computed_blocks`).
#[must_use]
pub fn cached_tokens(blocks: u32, prompt_tokens: u32, block_size: u32) -> u32 {
    let usable = prompt_tokens.saturating_sub(1) / block_size.max(1);
    blocks.min(usable).saturating_mul(block_size)
}
