//! The directory's state: a row per worker, fed by the registry, by beats, by probes and by proxies.

use std::collections::BTreeMap;
use std::time::Duration;

use identity::WorkerId;
use membership::card::State;
use membership::presence::{Bounds, Signal};
use membership::{Card, Presence};
use ports::engine::Endpoint;

use super::fleet::{Fleet, Worker};

/// News of a worker's agent, as heard on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// The worker.
    pub worker: WorkerId,
    /// When the last beat of any of its ranks was heard, by the process's clock.
    pub beat_at: Duration,
    /// Whether the engine answered its agent then.
    pub engine_healthy: bool,
}

/// Rows by worker.
#[derive(Debug, Default)]
pub(super) struct Table {
    bounds: Bounds,
    rows: BTreeMap<WorkerId, Row>,
}

#[derive(Debug)]
struct Row {
    card: Card,
    endpoint: Endpoint,
    presence: Presence,
    beat_at: Option<Duration>,
    probe_at: Duration,
}

/// Workers known at a time; further cards are refused.
const WORKERS_MAX: usize = 4096;

/// Time between two probes of a suspect.
const PROBE_PERIOD: Duration = Duration::from_secs(1);

impl Table {
    /// Starts with the rows of a published view: nothing is forgotten over a restart.
    pub(super) fn resume(bounds: Bounds, fleet: &Fleet) -> Self {
        let row = |worker: &Worker| Row {
            card: worker.card.clone(),
            endpoint: worker.endpoint.clone(),
            presence: worker.presence.clone(),
            beat_at: None,
            probe_at: Duration::ZERO,
        };
        let rows = fleet.workers().map(|worker| (worker.card.worker.clone(), row(worker))).collect();
        Self { bounds, rows }
    }

    /// Takes a card remembered from before this process, unless the worker is known already.
    pub(super) fn recall(&mut self, card: Card, endpoint: Endpoint, now: Duration) {
        if self.rows.len() < WORKERS_MAX && !self.rows.contains_key(&card.worker) {
            let presence = Presence::recalled(now);
            let row = Row { endpoint, presence, beat_at: None, probe_at: now, card };
            self.rows.insert(row.card.worker.clone(), row);
        }
    }

    /// Lists the cards, by worker.
    pub(super) fn cards(&self) -> impl Iterator<Item = &Card> {
        self.rows.values().map(|row| &row.card)
    }

    /// Takes a card, under lease. Answers false when there is no room.
    pub(super) fn put(&mut self, card: Card, endpoint: Endpoint, now: Duration) -> bool {
        if let Some(row) = self.rows.get_mut(&card.worker) {
            if row.endpoint != endpoint {
                row.presence = Presence::new(true, now);
            }
            row.presence.note(Signal::LeaseHeld, &self.bounds, now);
            (row.card, row.endpoint) = (card, endpoint);
            return true;
        }
        if self.rows.len() >= WORKERS_MAX {
            return false;
        }
        let presence = Presence::new(true, now);
        let row = Row { endpoint, presence, beat_at: None, probe_at: now, card };
        self.rows.insert(row.card.worker.clone(), row);
        true
    }

    /// Notes a lost lease; a worker that was draining has left.
    pub(super) fn lost(&mut self, worker: &WorkerId, now: Duration) {
        if self.rows.get(worker).is_some_and(|row| row.card.state == State::Draining) {
            self.rows.remove(worker);
        } else {
            self.note(worker, Signal::LeaseLost, now);
        }
    }

    /// Notes the lost leases of all workers that a complete listing lacks.
    pub(super) fn lost_but(&mut self, listed: &[WorkerId], now: Duration) {
        let gone = self.rows.keys().filter(|worker| !listed.contains(worker)).cloned();
        let gone: Vec<WorkerId> = gone.collect();
        for worker in gone {
            self.lost(&worker, now);
        }
    }

    /// Takes note of a signal.
    pub(super) fn note(&mut self, worker: &WorkerId, signal: Signal, now: Duration) {
        if let Some(row) = self.rows.get_mut(worker) {
            row.presence.note(signal, &self.bounds, now);
        }
    }

    /// Takes note of beats; older ones than those known change nothing.
    pub(super) fn heard(&mut self, pulses: &[Pulse]) {
        for pulse in pulses {
            if let Some(row) = self.rows.get_mut(&pulse.worker)
                && row.beat_at.is_none_or(|known| pulse.beat_at > known)
            {
                row.beat_at = Some(pulse.beat_at);
                let signal = Signal::Beat { engine_healthy: pulse.engine_healthy };
                row.presence.note(signal, &self.bounds, pulse.beat_at);
            }
        }
    }

    /// Lists the suspects whose next probe is due, and plans the one after.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(WorkerId, Endpoint)> {
        let bounds = self.bounds;
        let rows = self.rows.iter_mut();
        let due = rows.filter(|(_, row)| row.probe_at <= now && row.presence.standing(&bounds, now).suspect);
        due.map(|(worker, row)| {
            row.probe_at = now + PROBE_PERIOD;
            (worker.clone(), row.endpoint.clone())
        })
        .collect()
    }

    /// Forgets the workers that are gone and draws the view.
    pub(super) fn view(&mut self, version: u64, now: Duration) -> Fleet {
        let bounds = self.bounds;
        self.rows.retain(|_, row| !row.presence.standing(&bounds, now).gone);
        let worker = |row: &Row| Worker {
            card: row.card.clone(),
            endpoint: row.endpoint.clone(),
            standing: row.presence.standing(&bounds, now),
            presence: row.presence.clone(),
        };
        Fleet::new(version, self.rows.values().map(worker))
    }
}
