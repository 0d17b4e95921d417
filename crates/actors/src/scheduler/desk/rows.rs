//! What is kept per seat between two requests, in the order of the fleet's seats.

use std::collections::HashMap;
use std::sync::Arc;

use identity::{Holder, ModelName};
use membership::Card;
use membership::card::State;
use membership::presence::Routable;
use placement::{Estimator, Gauge, Limits, Load, Rates, Sample, Standing};

use crate::directory::Seat;
use crate::load_board::Peers;
use crate::scheduler::ledger::Ledger;
use crate::scheduler::overlap::{Overlap, Sight};

/// Rows for the seats of one view of the fleet.
#[derive(Debug, Default)]
pub(super) struct Rows {
    fleet_version: Option<u64>,
    rows: Vec<Row>,
}

/// What is kept of a seat.
#[derive(Debug)]
pub(super) struct Row {
    holder: Holder,
    pub(super) gauge: Arc<Gauge>,
    pub(super) estimator: Estimator,
    pub(super) priors: Rates,
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
        let mut learned: HashMap<Holder, Estimator> = before.map(|row| (row.holder, row.estimator)).collect();
        let row = |seat: &Seat| Row {
            holder: seat.holder.clone(),
            gauge: ledger.gauge(model, &seat.holder),
            estimator: learned.remove(&seat.holder).unwrap_or_default(),
            priors: priors(&seat.worker.card),
            limits: limits(&seat.worker.card),
            standing: standing(seat),
        };
        self.rows = overlap.seats().iter().map(row).collect();
        self.fleet_version = version;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    pub(super) fn at(&self, seat: usize) -> Option<&Row> {
        self.rows.get(seat)
    }

    /// Learns a holder's rates from a first-token time.
    pub(super) fn learn(&mut self, holder: &Holder, sample: &Sample) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.holder == *holder) {
            row.estimator.learn(&row.priors, sample);
        }
    }

    /// Forgets what was learned of a holder: its engine is another now.
    pub(super) fn unlearn(&mut self, holder: &Holder) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.holder == *holder) {
            row.estimator = Estimator::default();
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
