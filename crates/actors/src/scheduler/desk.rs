//! The scheduler's judgement: what it knows of holders beyond the index, and how it places a request.

mod notices;
mod prefills;
mod rows;
mod settling;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use identity::{BlockKey, Holder, Incarnation, MediaKey, ModelName};
use membership::card::{Feed, MediaCache};
use placement::{
    Candidate, Decision, Demotions, DispatchId, Doubt, Expected, Feature, Pending, PendingLimits, Predicted,
    Query, Residency, ResidencyLimits, Ruling, Turn, Unplaced, place,
};
use wire::notice::{News, Notice};

use notices::Heard;
use prefills::Prefills;
use rows::{Row, Rows};
use settling::Settling;

use super::assignment::{Origin, Outcome, Trace};
use super::ledger::Ledger;
use super::overlap::{IndexSource, Overlap, Sight};
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
    rows: Rows,
    residency: Residency,
    /// How much of media is remembered of holders that do not say.
    remembered: ResidencyLimits,
    pending: Pending,
    settling: Settling,
    /// Other frontends' dispatches.
    heard: Heard,
    demotions: Demotions,
    /// What other frontends are to know of this one's.
    unsaid: Vec<Notice>,
    prefills: Prefills,
    lives: HashMap<Holder, Incarnation>,
    seed: u64,
    round: u64,
}

/// What a request is judged by: the request and the views of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) request: &'a Arc<ScheduleRequest>,
    pub(super) overlap: &'a Overlap,
    pub(super) peers: &'a Peers,
    pub(super) now: Duration,
}

impl Desk {
    pub(super) fn new(model: ModelName, ledger: Ledger, limits: DeskLimits, seed: u64, life: u32) -> Self {
        Self {
            model,
            ledger,
            rows: Rows::default(),
            residency: Residency::new(limits.residency),
            remembered: limits.residency,
            pending: Pending::in_life(limits.pending, life),
            settling: Settling::default(),
            heard: Heard::default(),
            demotions: Demotions::default(),
            unsaid: Vec::new(),
            prefills: Prefills::default(),
            lives: HashMap::new(),
            seed,
            round: 0,
        }
    }

    /// Decides without consequences.
    pub(super) fn judge(&mut self, moment: &Moment<'_>) -> Result<Decision, Unplaced> {
        self.rows.fit(moment.overlap, &self.model, &self.ledger);
        let seats = moment.overlap.seats().iter().zip(moment.overlap.sights()).zip(self.rows.iter());
        let candidates: Vec<Candidate<'_>> =
            seats.map(|((seat, sight), row)| self.candidate(moment, seat, sight, row)).collect();
        let seed = self.seed.wrapping_add(self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        place(&moment.request.wanted(), &candidates, Turn { seed, round: self.round })
    }

    /// Decides, reserves, and remembers what the request will bring to its holder.
    pub(super) fn assign(&mut self, moment: &Moment<'_>) -> Result<Placed, Unplaced> {
        let decision = self.judge(moment)?;
        self.round += 1;
        let Some(((seat, sight), row)) =
            moment.overlap.at(decision.chosen).zip(self.rows.at(decision.chosen))
        else {
            return Err(Unplaced { appraisals: decision.appraisals });
        };
        let (choice, routing) = (decision.choice(), &moment.request.routing);
        let (ahead, place) = (row.load(sight, moment.peers), row.gauge.reserve(&choice.work));
        let prefill_tokens = ahead.prefill_tokens as f64 + f64::from(choice.work.prefill_tokens);
        let encode_tokens = ahead.media_tokens as f64 + f64::from(choice.work.encode_tokens);
        if !moment.request.streams {
            let wait_ms = row.rates.first_token_ms(prefill_tokens, encode_tokens);
            self.prefills.end_after(wait_ms, place.prefill(), moment.now);
        }
        let block_size = seat.worker.card.block_size;
        let predicted = Predicted {
            prompt_tokens: routing.prompt_tokens,
            cached_tokens: choice.work.cached_tokens,
            pending_tokens: choice.pending_blocks.saturating_mul(block_size),
            media_tokens: routing.mm_routing_info.total_image_tokens,
            block_size,
        };
        let chain = match choice.doubt {
            // The engine's blocks will have other keys.
            Some(Doubt::OtherRendering) => &[],
            Some(Doubt::Withdrawn) | None => routing.chain(block_size).unwrap_or(&[]),
        };
        let trace = Trace {
            seat: seat.clone(),
            request: Arc::clone(moment.request),
            dispatch: self.expect_blocks(seat, chain, sight.matched_blocks, moment.now),
            new_media: self.expect_media(moment, seat),
            dispatched_at: moment.now,
            prefill_tokens,
            encode_tokens,
            origin: Origin::Own,
        };
        self.say_begun(&trace, sight.matched_blocks);
        Ok(Placed { seat: seat.clone(), decision, place, trace, predicted })
    }

    /// Takes note of what became of a dispatch.
    pub(super) fn came(&mut self, outcome: Outcome, index: &dyn IndexSource, now: Duration) {
        match outcome {
            Outcome::FirstToken(trace, sample) => {
                self.rows.learn(&trace.seat.holder, &sample);
                self.computed(trace, index, now);
            }
            Outcome::Ended(trace, true) => self.computed(trace, index, now),
            Outcome::Ended(trace, false) => {
                self.say(&trace, News::Failed);
                self.failed(&trace);
            }
            Outcome::Freed => {}
        }
    }

    /// Takes note of media that a holder's engine has just computed, whosever request brought them.
    pub(super) fn had_media(&mut self, holder: &Holder, media: &[MediaKey], now: Duration) {
        for key in media {
            self.residency.had(holder, *key, now);
        }
    }

    /// Ends the dispatches whose blocks the index shows by now.
    pub(super) fn confirm(&mut self, index: &dyn IndexSource) {
        for trace in self.settling.shown(&self.pending, index) {
            self.confirmed(&trace);
        }
    }

    /// Takes what other frontends are to be told.
    pub(super) fn unsaid(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.unsaid)
    }

    /// Ends what ends by time.
    pub(super) fn expire(&mut self, now: Duration) {
        self.pending.expire(now);
        self.prefills.expire(now);
    }

    /// Forgets holders that are gone, and what holders had whose engine is another now.
    pub(super) fn reconcile(&mut self, fleet: &Fleet, index: &dyn IndexSource) {
        let seats = fleet.seats(&self.model);
        let present: HashSet<&Holder> = seats.iter().map(|seat| &seat.holder).collect();
        let exists = |holder: &Holder| present.contains(holder);
        self.residency.retain(exists);
        self.lives.retain(|holder, _| exists(holder));
        if self.ledger.close_idle(&self.model, exists) {
            self.rows.refit();
        }
        self.heard.forget_ended(&self.pending);
        self.demotions.retain(exists);
        for seat in seats {
            // Others' load is told by holder: also where this frontend has had nothing yet.
            drop(self.ledger.gauge(&self.model, &seat.holder));
            if let Some(limits) = self.remembers(seat) {
                self.residency.limit(&seat.holder, limits);
            }
            let Some(life) = index.incarnation(&seat.holder) else { continue };
            let before = self.lives.insert(seat.holder.clone(), life);
            if before.is_some_and(|before| before != life) {
                self.residency.forget_holder(&seat.holder);
                self.pending.forget_holder(&seat.holder);
                self.rows.unlearn(&seat.holder);
                self.demotions.forget_holder(&seat.holder);
            }
        }
    }

    /// Says how much a holder remembers of media, where its card does.
    fn remembers(&self, seat: &Seat) -> Option<ResidencyLimits> {
        let MediaCache { items_max, ttl_ms } = seat.worker.card.media_cache;
        let mut limits = self.remembered;
        if items_max > 0 {
            limits.items_max = usize::try_from(items_max).ok()?;
        }
        if ttl_ms > 0 {
            limits.ttl = Duration::from_millis(ttl_ms);
        }
        (items_max > 0 || ttl_ms > 0).then_some(limits)
    }

    fn candidate<'a>(&self, moment: &Moment<'_>, seat: &'a Seat, sight: &Sight, row: &Row) -> Candidate<'a> {
        let (card, routing) = (&seat.worker.card, &moment.request.routing);
        let (trusted, doubt) = self.trusted_blocks(moment, seat);
        let matched_blocks = sight.matched_blocks.min(trusted);
        let pending = if seat.worker.has_credit() && matched_blocks < trusted {
            let chain = routing.chain(card.block_size).unwrap_or(&[]);
            self.pending.expected(&seat.holder, chain, matched_blocks)
        } else {
            Expected::default()
        };
        let media = Query {
            multiset: &routing.mm_routing_info.image_multiset,
            payload_free: &moment.request.payload_free,
        };
        Candidate {
            holder: &seat.holder,
            standing: row.standing,
            block_size: card.block_size,
            matched_blocks,
            pending_blocks: pending.blocks.min(trusted - matched_blocks),
            computing_blocks: pending.computing,
            doubt,
            near: self.residency.near(&seat.holder, media, moment.now),
            limits: row.limits,
            adapters: &card.adapters,
            rates: row.rates,
            load: row.load(sight, moment.peers),
        }
    }

    /// Blocks of the prompt up to which predictions for this holder are believed, and why not further.
    fn trusted_blocks(&self, moment: &Moment<'_>, seat: &Seat) -> (u32, Option<Doubt>) {
        let request = moment.request;
        if !request.is_rendered_by(&seat.worker.card) {
            return (0, Some(Doubt::OtherRendering));
        }
        let demoted = |feature| self.demotions.is_demoted(&seat.holder, feature, moment.now);
        let trusted = match request.feature() {
            _ if demoted(Feature::Text) => 0,
            Feature::Scoped if demoted(Feature::Scoped) => 0,
            Feature::Media if demoted(Feature::Media) => {
                request.first_media_token.unwrap_or(0) / seat.worker.card.block_size.max(1)
            }
            Feature::Text | Feature::Media | Feature::Scoped => return (u32::MAX, None),
        };
        (trusted, Some(Doubt::Withdrawn))
    }

    /// Takes note of what came of a prediction.
    pub(super) fn judged(&mut self, ruling: &Ruling, now: Duration) {
        if self.demotions.note(ruling, now) {
            let (worker, rank, feature) =
                (&ruling.holder.worker, ruling.holder.rank, ruling.feature.as_str());
            let class = ruling.verdict.as_str();
            tracing::warn!(%worker, %rank, feature, class, "predictions keep failing, credit withdrawn");
        }
    }

    /// Counts what is kept.
    pub(super) fn figures(&self) -> (usize, usize) {
        (self.pending.blocks(), self.settling.len())
    }

    /// Counts a request's uncached blocks as pending for its holder, and itself as relying on those before them.
    fn expect_blocks(
        &mut self,
        seat: &Seat,
        chain: &[BlockKey],
        matched: u32,
        now: Duration,
    ) -> Option<DispatchId> {
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
                let (blocks_max, until) =
                    (usize::try_from(blocks_max).ok()?, now + Duration::from_millis(ttl_ms));
                self.pending.approximate(&seat.holder, uncached, blocks_max, until)
            }
        }
    }

    fn expect_media(&mut self, moment: &Moment<'_>, seat: &Seat) -> Vec<MediaKey> {
        let media = &moment.request.routing.mm_routing_info.image_multiset;
        let keys = media.iter().map(|(key, _)| *key);
        keys.filter(|key| self.residency.see(&seat.holder, *key, moment.now)).collect()
    }

    /// The prompt is computed: an engine with events tells of its blocks soon; of one without, they count on.
    fn computed(&mut self, trace: Trace, index: &dyn IndexSource, now: Duration) {
        for media in &trace.new_media {
            self.residency.arrived(&trace.seat.holder, *media);
        }
        self.say(&trace, News::Computed);
        let Some(dispatch) = trace.dispatch else { return };
        if trace.seat.worker.card.feed == Feed::Events {
            self.pending.settle(dispatch, now);
            self.settle(trace, index);
        } else {
            self.pending.computed(dispatch);
        }
    }

    /// Waits until the index shows a dispatch's blocks.
    fn settle(&mut self, trace: Trace, index: &dyn IndexSource) {
        if settling::is_shown(&trace, index) {
            self.confirmed(&trace);
        } else if let Some(oldest) = self.settling.put(trace) {
            self.confirmed(&oldest);
        }
    }

    fn confirmed(&mut self, trace: &Trace) {
        if let Some(dispatch) = trace.dispatch {
            self.pending.end(dispatch);
            self.say(trace, News::Confirmed);
        }
    }

    fn failed(&mut self, trace: &Trace) {
        if let Some(dispatch) = trace.dispatch {
            self.pending.end(dispatch);
        }
        for media in &trace.new_media {
            self.residency.revoke(&trace.seat.holder, *media);
        }
    }
}
