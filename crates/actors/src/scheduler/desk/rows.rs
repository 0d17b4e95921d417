//! What is kept per seat between two requests, in the order of the fleet's seats.

use std::collections::HashMap;
use std::sync::Arc;

use identity::{Holder, ModelName};
use membership::Card;
use membership::card::State;
use membership::presence::Routable;
use placement::{Estimator, Gauge, Learning, Limits, Load, Rates, Sample, Standing};

use crate::directory::Seat;
use crate::load_board::Peers;
use crate::scheduler::ledger::Ledger;
use crate::scheduler::overlap::{Overlap, Sight};

/// Rows for the seats of one view of the fleet.
#[derive(Debug, Default)]
pub(super) struct Rows {
    fleet_version: Option<u64>,
    rows: Vec<Row>,
    /// What holders with the same priors have in common.
    shared: Vec<(Rates, Estimator)>,
}

/// Groups of equal priors whose common rates are learned.
const SHARED_MAX: usize = 64;

/// What is kept of a seat.
#[derive(Debug)]
pub(super) struct Row {
    holder: Holder,
    pub(super) gauge: Arc<Gauge>,
    own: Estimator,
    priors: Rates,
    /// The priors as corrected by what was learned.
    pub(super) rates: Rates,
    pub(super) limits: Limits,
    pub(super) standing: Standing,
}

impl Rows {
    /// Fits the rows to a view of the fleet; what was learned of a holder stays with it.
    pub(super) fn fit(&mut self, overlap: &Overlap, model: &ModelName, ledger: &Ledger) {
        let version = Some(overlap.fleet_version());
        if self.fleet_version == version {
            return;
        }
        let before = std::mem::take(&mut self.rows).into_iter();
        let mut learned: HashMap<Holder, Estimator> = before.map(|row| (row.holder, row.own)).collect();
        let row = |seat: &Seat| Row {
            holder: seat.holder.clone(),
            gauge: ledger.gauge(model, &seat.holder),
            own: learned.remove(&seat.holder).unwrap_or(Estimator::new(Learning::OWN)),
            priors: priors(&seat.worker.card),
            rates: Rates::default(),
            limits: limits(&seat.worker.card),
            standing: standing(seat),
        };
        self.rows = overlap.seats().iter().map(row).collect();
        let rows = &self.rows;
        self.shared.retain(|(priors, _)| rows.iter().any(|row| row.priors == *priors));
        self.apply();
        self.fleet_version = version;
    }

    /// Fits the rows anew at the next request: their gauges may have left the ledger.
    pub(super) fn refit(&mut self) {
        self.fleet_version = None;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    pub(super) fn at(&self, seat: usize) -> Option<&Row> {
        self.rows.get(seat)
    }

    /// Learns from a holder's first-token time: first what it has in common with its like, then what sets it apart.
    pub(super) fn learn(&mut self, holder: &Holder, sample: &Sample) {
        let Some(row) = self.rows.iter_mut().find(|row| row.holder == *holder) else { return };
        let known = self.shared.iter().position(|(priors, _)| *priors == row.priors);
        if known.is_none() && self.shared.len() < SHARED_MAX {
            self.shared.push((row.priors, Estimator::new(Learning::SHARED)));
        }
        if let Some((priors, shared)) = self.shared.iter_mut().find(|(priors, _)| *priors == row.priors) {
            row.own.learn(&shared.rates(priors), sample);
            shared.learn(priors, sample);
        }
        self.apply();
    }

    /// Forgets what set a holder apart: its engine is another now.
    pub(super) fn unlearn(&mut self, holder: &Holder) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.holder == *holder) {
            row.own = Estimator::new(Learning::OWN);
        }
        self.apply();
    }

    fn apply(&mut self) {
        for row in &mut self.rows {
            let shared = self.shared.iter().find(|(priors, _)| *priors == row.priors);
            let common = shared.map_or(row.priors, |(priors, shared)| shared.rates(priors));
            row.rates = row.own.rates(&common);
        }
    }
}

impl Row {
    pub(super) fn load(&self, sight: &Sight, peers: &Peers) -> Load {
        let fleet = self.gauge.read().1.plus(peers.total(&self.holder));
        Load {
            in_flight: fleet.active_requests,
            active: fleet.active_requests.max(sight.engine_active),
            prefill_tokens: fleet.prefill_tokens,
            media_tokens: fleet.media_tokens,
            decode_blocks: fleet.decode_blocks,
            cached_blocks: sight.blocks,
            kv_usage: sight.kv_usage,
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
