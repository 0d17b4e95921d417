//! The scheduler's judgement: what it knows of holders beyond the index, and how it places a request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use identity::{BlockKey, Holder, Incarnation, ModelName};
use membership::Card;
use membership::card::{Feed, State};
use membership::presence::Routable;
use placement::{
    Candidate, Decision, DispatchId, Estimator, Expected, Limits, Load, Pending, PendingLimits, Predicted,
    Prefill, Query, Rates, Residency, ResidencyLimits, Sample, Standing, Turn, Unplaced, place,
};

use super::assignment::{Outcome, Trace};
use super::ledger::Ledger;
use super::overlap::{Overlap, Sight};
use super::request::ScheduleRequest;
use crate::directory::{Fleet, Seat};
use crate::load_board::Peers;

/// How much the scheduler remembers.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeskLimits {
    /// Of media.
    pub residency: ResidencyLimits,
    /// Of pending blocks.
    pub pending: PendingLimits,
}

/// A placed request before it is handed out.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) seat: Seat,
    pub(super) decision: Decision,
    pub(super) place: placement::Reservation,
    pub(super) trace: Trace,
    pub(super) predicted: Predicted,
}

/// Soft state by holder; all of it may be lost.
#[derive(Debug)]
pub(super) struct Desk {
    model: ModelName,
    ledger: Ledger,
    residency: Residency,
    pending: Pending,
    estimators: HashMap<Holder, Estimator>,
    lives: HashMap<Holder, Incarnation>,
    prefills: BinaryHeap<Due>,
    seed: u64,
    round: u64,
}

/// Prefills that end by time, at most; past it they end at once.
const PREFILLS_MAX: usize = 65_536;
/// The longest a prefill may be predicted to take.
const PREFILL_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Due {
    at: Reverse<Duration>,
    prefill: Prefill,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// What a request is judged by: the request and the views of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) request: &'a ScheduleRequest,
    pub(super) overlap: &'a Overlap,
    pub(super) peers: &'a Peers,
    pub(super) now: Duration,
}

impl Desk {
    pub(super) fn new(model: ModelName, ledger: Ledger, limits: DeskLimits, seed: u64, life: u32) -> Self {
        Self {
            model,
            ledger,
            residency: Residency::new(limits.residency),
            pending: Pending::in_life(limits.pending, life),
            estimators: HashMap::new(),
            lives: HashMap::new(),
            prefills: BinaryHeap::new(),
            seed,
            round: 0,
        }
    }

    /// Decides without consequences.
    pub(super) fn judge(&self, moment: &Moment<'_>) -> Result<Decision, Unplaced> {
        let seats = moment.overlap.seats();
        let candidates = seats.iter().zip(moment.overlap.sights());
        let candidates: Vec<Candidate<'_>> =
            candidates.map(|(seat, sight)| self.candidate(moment, seat, sight)).collect();
        let seed = self.seed.wrapping_add(self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        place(&moment.request.wanted(), &candidates, Turn { seed, round: self.round })
    }

    /// Decides, reserves, and remembers what the request will bring to its holder.
    pub(super) fn assign(&mut self, moment: &Moment<'_>) -> Result<Placed, Unplaced> {
        let decision = self.judge(moment)?;
        self.round += 1;
        let Some((seat, sight)) = moment.overlap.at(decision.chosen) else {
            return Err(Unplaced { appraisals: decision.appraisals });
        };
        let choice = decision.choice();
        let ahead = self.load(seat, sight, moment.peers);
        let place = self.ledger.gauge(&self.model, &seat.holder).reserve(&choice.work);
        let block_size = seat.worker.card.block_size;
        let chain = moment.request.routing.chain(block_size).unwrap_or(&[]);
        let trace = Trace {
            holder: seat.holder.clone(),
            dispatch: self.expect_blocks(seat, chain, sight.matched_blocks, moment.now),
            new_media: self.expect_media(moment, seat),
            dispatched_at: moment.now,
            prefill_tokens: ahead.prefill_tokens as f64 + f64::from(choice.work.prefill_tokens),
            encode_tokens: ahead.media_tokens as f64 + f64::from(choice.work.encode_tokens),
        };
        if !moment.request.streams {
            let estimator = self.estimators.get(&seat.holder).copied().unwrap_or_default();
            let ms = estimator.predict(&priors(&seat.worker.card), trace.prefill_tokens, trace.encode_tokens);
            let wait = Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(PREFILL_MAX);
            self.end_later(place.prefill(), moment.now + wait.min(PREFILL_MAX));
        }
        let predicted = Predicted {
            prompt_tokens: moment.request.routing.prompt_tokens,
            cached_tokens: choice.work.cached_tokens,
            pending_tokens: choice.pending_blocks.saturating_mul(block_size),
            media_tokens: moment.request.routing.mm_routing_info.total_image_tokens,
            block_size,
        };
        Ok(Placed { seat: seat.clone(), decision, place, trace, predicted })
    }

    /// Takes note of what became of a dispatch.
    pub(super) fn came(&mut self, outcome: &Outcome, fleet: &Fleet, now: Duration) {
        match outcome {
            Outcome::FirstToken(trace, sample) => {
                self.learn(&trace.holder, sample, fleet);
                self.settle(trace, fleet, now);
            }
            Outcome::Ended(trace, true) => self.settle(trace, fleet, now),
            Outcome::Ended(trace, false) => {
                if let Some(dispatch) = trace.dispatch {
                    self.pending.end(dispatch);
                }
                for media in &trace.new_media {
                    self.residency.forget(&trace.holder, *media);
                }
            }
            Outcome::Freed => {}
        }
    }

    /// Ends what ends by time.
    pub(super) fn expire(&mut self, now: Duration) {
        self.pending.expire(now);
        while self.prefills.peek().is_some_and(|due| due.at.0 <= now) {
            if let Some(due) = self.prefills.pop() {
                due.prefill.end();
            }
        }
    }

    /// Forgets holders that are gone, and what holders had whose engine is another now.
    pub(super) fn reconcile(&mut self, fleet: &Fleet, incarnation: impl Fn(&Holder) -> Option<Incarnation>) {
        let seats = fleet.seats(&self.model);
        let exists = |holder: &Holder| seats.iter().any(|seat| seat.holder == *holder);
        self.residency.retain(exists);
        self.estimators.retain(|holder, _| exists(holder));
        self.lives.retain(|holder, _| exists(holder));
        self.ledger.close_idle(&self.model, exists);
        for seat in seats {
            let Some(life) = incarnation(&seat.holder) else { continue };
            let before = self.lives.insert(seat.holder.clone(), life);
            if before.is_some_and(|before| before != life) {
                self.residency.forget_holder(&seat.holder);
                self.pending.forget_holder(&seat.holder);
                self.estimators.remove(&seat.holder);
            }
        }
    }

    fn candidate<'a>(&self, moment: &Moment<'_>, seat: &'a Seat, sight: &Sight) -> Candidate<'a> {
        let card = &seat.worker.card;
        let chain = moment.request.routing.chain(card.block_size).unwrap_or(&[]);
        let media = Query {
            multiset: &moment.request.routing.mm_routing_info.image_multiset,
            payload_free: &moment.request.payload_free,
        };
        let credit = seat.worker.has_credit();
        let pending = self.pending.expected(&seat.holder, chain, sight.matched_blocks);
        let pending = if credit { pending } else { Expected::default() };
        let estimator = self.estimators.get(&seat.holder).copied().unwrap_or_default();
        Candidate {
            holder: &seat.holder,
            standing: standing(seat),
            block_size: card.block_size,
            matched_blocks: sight.matched_blocks,
            pending_blocks: pending.blocks,
            computing_blocks: pending.computing,
            near: self.residency.near(&seat.holder, media, moment.now),
            limits: limits(card),
            adapters: &card.adapters,
            rates: estimator.rates(&priors(card)),
            load: self.load(seat, sight, moment.peers),
        }
    }

    fn load(&self, seat: &Seat, sight: &Sight, peers: &Peers) -> Load {
        let fleet = self.ledger.gauges(&seat.holder).plus(peers.total(&seat.holder));
        Load {
            in_flight: fleet.active_requests,
            active: fleet.active_requests.max(sight.engine_active),
            prefill_tokens: fleet.prefill_tokens,
            media_tokens: fleet.media_tokens,
            decode_blocks: fleet.decode_blocks,
            kv_usage: sight.kv_usage,
        }
    }

    /// Counts a request's uncached blocks as pending for its holder, and itself as relying on those before them.
    fn expect_blocks(
        &mut self,
        seat: &Seat,
        chain: &[BlockKey],
        matched: u32,
        now: Duration,
    ) -> Option<DispatchId> {
        if let Some(last) = chain.get(usize::try_from(matched).ok()?.wrapping_sub(1)) {
            self.pending.confirm(&seat.holder, *last);
        }
        let expected = self.pending.expected(&seat.holder, chain, matched);
        let known = usize::try_from(matched.saturating_add(expected.blocks)).ok()?;
        let uncached = chain.get(known..).unwrap_or(&[]);
        match seat.worker.card.feed {
            Feed::Events => {
                if let Some(last) = expected.last {
                    self.pending.follow(last);
                }
                self.pending.dispatch(&seat.holder, uncached, now)
            }
            Feed::Dispatches { ttl_ms, blocks_max } => {
                let uncached = uncached.get(..usize::try_from(blocks_max).ok()?).unwrap_or(uncached);
                self.pending.dispatch_for(&seat.holder, uncached, Duration::from_millis(ttl_ms), now)
            }
        }
    }

    fn expect_media(&mut self, moment: &Moment<'_>, seat: &Seat) -> Vec<identity::MediaKey> {
        let media = &moment.request.routing.mm_routing_info.image_multiset;
        let keys = media.iter().map(|(key, _)| *key);
        keys.filter(|key| self.residency.see(&seat.holder, *key, moment.now)).collect()
    }

    fn end_later(&mut self, prefill: Prefill, at: Duration) {
        if self.prefills.len() < PREFILLS_MAX {
            self.prefills.push(Due { at: Reverse(at), prefill });
        } else {
            prefill.end();
        }
    }

    fn learn(&mut self, holder: &Holder, sample: &Sample, fleet: &Fleet) {
        if let Some(seat) = fleet.seats(&self.model).iter().find(|seat| seat.holder == *holder) {
            let estimator = self.estimators.entry(holder.clone()).or_default();
            estimator.learn(&priors(&seat.worker.card), sample);
        }
    }

    /// The prompt is computed: an engine with events tells of its blocks soon; of one without, they count on.
    fn settle(&mut self, trace: &Trace, fleet: &Fleet, now: Duration) {
        let worker = fleet.worker(&trace.holder.worker);
        let by_events = worker.is_none_or(|worker| worker.card.feed == Feed::Events);
        if let Some(dispatch) = trace.dispatch.filter(|_| by_events) {
            self.pending.settle(dispatch, now);
        }
        for media in &trace.new_media {
            self.residency.arrived(&trace.holder, *media);
        }
    }
}

fn standing(seat: &Seat) -> Standing {
    match (seat.worker.standing.routable, seat.worker.card.state) {
        (Routable::No, _) => Standing::Unreachable,
        (_, State::Draining) => Standing::Draining,
        (_, State::Starting) => Standing::Starting,
        (Routable::Yes | Routable::ByLoad, State::Ready) => Standing::Ready,
    }
}

const fn limits(card: &Card) -> Limits {
    Limits {
        context_tokens_max: card.limits.context_tokens_max,
        media_items_max: card.limits.media_items_max,
        in_flight_max: card.limits.in_flight_max,
        kv_blocks: card.limits.kv_blocks,
    }
}

fn priors(card: &Card) -> Rates {
    let priors = &card.priors;
    Rates::from_speeds(
        priors.prefill_tokens_per_s,
        priors.encode_tokens_per_s,
        priors.fetch_bytes_per_s,
        priors.decode_us_per_active,
    )
}
