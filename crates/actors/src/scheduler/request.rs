//! A question to the scheduler.

use std::sync::Arc;
use std::time::Duration;

use identity::{MediaKey, Rank, WorkerId};
use membership::{Card, Rendering};
use placement::{Feature, Policy, RoutingRequest, Wanted};

use crate::remote_index::Found;

/// A request to be placed, with the circumstances it comes with.
#[derive(Clone, Debug)]
pub struct ScheduleRequest {
    /// The request.
    pub routing: Arc<RoutingRequest>,
    /// How to choose among feasible holders.
    pub policy: Policy,
    /// The one worker (and rank) that may serve it.
    pub direct: Option<(WorkerId, Option<Rank>)>,
    /// The session it belongs to, hashed by [`session`].
    pub session: Option<u64>,
    /// The adapter it runs on; empty for none.
    pub adapter: String,
    /// Whether it has a cache salt.
    pub salted: bool,
    /// Workers that must not serve it, such as those it failed on.
    pub excluded: Vec<WorkerId>,
    /// Media that come without payload: only holders where all are resident can serve it.
    pub payload_free: Vec<MediaKey>,
    /// Sum of the media's sizes, in bytes; zero when unknown.
    pub media_bytes: u64,
    /// Index of the first media token in the prompt; none for a text prompt.
    pub first_media_token: Option<u32>,
    /// Whether its first token will be seen; else prefill ends at its predicted time.
    pub streams: bool,
    /// How it waits when every holder is busy.
    pub waiting: Waiting,
    /// What it was turned into tokens with: holders that do it otherwise get no credit; none where nothing was.
    pub rendering: Option<Arc<Rendering>>,
    /// What an indexer found of it; none where the index is in this process, or nobody answered.
    pub found: Option<Arc<Found>>,
}

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The longest it may wait; zero to be refused at once.
    pub wait_max: Duration,
    /// Lower is served earlier, as engines have it.
    pub priority: i32,
    /// Names the tenant.
    pub tenant: u64,
    /// The tenant's share relative to others'.
    pub weight: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { wait_max: Duration::from_secs(10), priority: 0, tenant: 0, weight: 1 }
    }
}

impl ScheduleRequest {
    /// Asks for a request to be placed by policy, without further circumstances.
    #[must_use]
    pub fn new(routing: Arc<RoutingRequest>, policy: Policy) -> Self {
        Self {
            routing,
            policy,
            direct: None,
            session: None,
            adapter: String::new(),
            salted: false,
            excluded: Vec::new(),
            payload_free: Vec::new(),
            media_bytes: 0,
            first_media_token: None,
            streams: true,
            waiting: Waiting::default(),
            rendering: None,
            found: None,
        }
    }

    /// Returns what a prediction of it rests on.
    #[must_use]
    pub fn feature(&self) -> Feature {
        if self.salted || !self.adapter.is_empty() {
            Feature::Scoped
        } else if self.routing.mm_routing_info.image_multiset.is_empty() {
            Feature::Text
        } else {
            Feature::Media
        }
    }

    /// Tells whether an engine turns the request into the tokens that are predicted.
    pub(super) fn is_rendered_by(&self, card: &Card) -> bool {
        self.rendering.as_ref().is_none_or(|rendering| rendering.suits(card))
    }

    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            routing: &self.routing,
            policy: self.policy,
            direct: self.direct.as_ref().map(|(worker, rank)| (worker, *rank)),
            session: self.session,
            adapter: &self.adapter,
            excluded: &self.excluded,
            payload_free: &self.payload_free,
            media_bytes: self.media_bytes,
            first_media_token: self.first_media_token,
        }
    }
}

/// Hashes a session's name, as media names are hashed, alike on every frontend.
#[must_use]
pub fn session(name: &str) -> u64 {
    MediaKey::of(name).get()
}
