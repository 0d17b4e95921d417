//! Who may serve a request, and why not.

use identity::Holder;

use crate::doubt::Doubt;
use crate::policy::Policy;
use crate::rates::Rates;
use crate::wanted::Wanted;

/// What placement knows of one holder, for one request.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The holder.
    pub holder: &'a Holder,
    /// Whether it takes requests at all.
    pub standing: Standing,
    /// Tokens per block.
    pub block_size: u32,
    /// Blocks of the request's prompt that the index says it has.
    pub matched_blocks: u32,
    /// Blocks that follow those and are on their way by earlier dispatches.
    pub pending_blocks: u32,
    /// Blocks among those whose computation is part of the work ahead.
    pub computing_blocks: u32,
    /// Why its blocks count less than the index says; none where they count.
    pub doubt: Option<Doubt>,
    /// Which of the request's media it had lately.
    pub near: NearMedia,
    /// What it can take.
    pub limits: Limits,
    /// Adapters that are loaded.
    pub adapters: &'a [String],
    /// How fast it is.
    pub rates: Rates,
    /// What it is doing.
    pub load: Load,
}

/// Whether a holder takes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    #[default]
    Ready,
    /// Not yet.
    Starting,
    /// It finishes what it has.
    Draining,
    /// It cannot be reached.
    Unreachable,
    /// It is set aside after failures.
    Quarantined,
}

/// What a holder can take; zero stands for unlimited or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Longest context, in tokens; a prompt must leave room for one more.
    pub context_tokens_max: u32,
    /// Most media items in one request.
    pub media_items_max: u32,
    /// Most requests in flight.
    pub in_flight_max: u32,
    /// Size of the KV cache, in blocks.
    pub kv_blocks: u32,
}

/// What a holder is doing, counted over all frontends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests dispatched to it that have not ended; decides the in-flight bound.
    pub in_flight: u32,
    /// Sequences that share its steps: the larger of `in_flight` and what the engine itself reports.
    pub active: u32,
    /// Prompt tokens that it has yet to compute.
    pub prefill_tokens: u64,
    /// Media tokens that it has yet to encode.
    pub media_tokens: u64,
    /// Blocks that active sequences occupy.
    pub decode_blocks: u64,
    /// Blocks that it caches, in use or not, as the index knows.
    pub cached_blocks: u64,
    /// Share of its KV cache in use as it reports, 0 to 1.
    pub kv_usage: f64,
}

/// Which of a request's media a holder had lately, whatever stood before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearMedia {
    /// How many items.
    pub items: u32,
    /// Their tokens.
    pub tokens: u32,
    /// Tokens among those whose encoding is part of the work ahead.
    pub coming_tokens: u32,
    /// Whether one of them is coming, or was first dispatched there a moment ago.
    pub fresh: bool,
    /// Whether an item that comes without payload is not among them.
    pub lacks_payload_free: bool,
}

/// Why a holder cannot serve a request; ordered from what time may cure to what nothing will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It has as many requests in flight as it may.
    Busy,
    /// It does not take requests yet.
    Starting,
    /// It is set aside after failures.
    Quarantined,
    /// It cannot be reached.
    Unreachable,
    /// It takes no new requests.
    Draining,
    /// The request failed there before.
    Excluded,
    /// It lacks an item that the request names without payload.
    MediaNotResident,
    /// It has not loaded the adapter.
    Adapter,
    /// The request has more media items than it takes.
    MediaCount,
    /// The prompt leaves no room in its context.
    Context,
    /// The request is for another worker.
    NotRequested,
}

impl Why {
    /// Returns the word that answers and metrics use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Starting => "starting",
            Self::Quarantined => "quarantined",
            Self::Unreachable => "unreachable",
            Self::Draining => "draining",
            Self::Excluded => "excluded",
            Self::MediaNotResident => "media-not-resident",
            Self::Adapter => "adapter",
            Self::MediaCount => "media-count",
            Self::Context => "context",
            Self::NotRequested => "not-requested",
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NearMedia {
    const NONE: Self =
        Self { items: 0, tokens: 0, coming_tokens: 0, fresh: false, lacks_payload_free: false };
}

impl Candidate<'_> {
    /// Says why this holder cannot serve the request; none when it can.
    ///
    /// Where several reasons hold, the one that time cures last is named.
    #[must_use]
    pub fn why_not(&self, wanted: &Wanted<'_>) -> Option<Why> {
        let over = |count: u32, max: u32| max != 0 && count > max;
        let routing = wanted.routing;
        let items = u32::try_from(routing.mm_routing_info.image_multiset.len()).unwrap_or(u32::MAX);
        if let Some((worker, rank)) = wanted.direct
            && (*worker != self.holder.worker || rank.is_some_and(|rank| rank != self.holder.rank))
        {
            return Some(Why::NotRequested);
        }
        if over(routing.prompt_tokens.saturating_add(1), self.limits.context_tokens_max) {
            return Some(Why::Context);
        }
        if over(items, self.limits.media_items_max) {
            return Some(Why::MediaCount);
        }
        if !wanted.adapter.is_empty() && !self.adapters.iter().any(|adapter| adapter == wanted.adapter) {
            return Some(Why::Adapter);
        }
        if self.near.lacks_payload_free {
            return Some(Why::MediaNotResident);
        }
        if wanted.excluded.contains(&self.holder.worker) {
            return Some(Why::Excluded);
        }
        match self.standing {
            Standing::Draining => Some(Why::Draining),
            Standing::Unreachable => Some(Why::Unreachable),
            Standing::Quarantined => Some(Why::Quarantined),
            Standing::Starting => Some(Why::Starting),
            Standing::Ready => {
                over(self.load.in_flight.saturating_add(1), self.limits.in_flight_max).then_some(Why::Busy)
            }
        }
    }

    /// Blocks of the prompt that it will have when the request arrives, as far as the policy sees.
    #[must_use]
    pub fn blocks(&self, wanted: &Wanted<'_>) -> u32 {
        self.matched_blocks.saturating_add(self.pending_blocks).min(wanted.blocks_max(self.block_size))
    }

    /// Media tokens and items near it, as far as the policy sees.
    pub(crate) const fn near(&self, policy: Policy) -> NearMedia {
        if matches!(policy, Policy::KvText) {
            return NearMedia { lacks_payload_free: self.near.lacks_payload_free, ..NearMedia::NONE };
        }
        self.near
    }
}
