//! The published view of all workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use identity::{Holder, ModelName, WorkerId};
use membership::card::State;
use membership::presence::{Credit, Routable, Standing};
use membership::{Card, Pool, Presence, pools};
use ports::engine::Endpoint;

/// One worker as the process sees it now.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What it says of itself.
    pub card: Card,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// Whether requests may go there and its cache counts.
    pub standing: Standing,
    pub(super) presence: Presence,
}

impl Worker {
    /// Says in one word how the worker stands, for people.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match (self.standing.routable, self.card.state) {
            (Routable::No, _) => "down",
            (_, State::Draining) => "draining",
            (_, State::Starting) => "starting",
            (Routable::ByLoad, State::Ready) => "suspect",
            (Routable::Yes, State::Ready) => match self.standing.credit {
                Credit::Aging { .. } => "stale",
                Credit::Full | Credit::Kept | Credit::None => "ready",
            },
        }
    }

    /// Tells whether requests may be tried there now.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.card.state == State::Ready && self.standing.routable != Routable::No
    }

    /// Tells whether its cache counts for placement.
    #[must_use]
    pub const fn has_credit(&self) -> bool {
        matches!(self.standing.credit, Credit::Full | Credit::Aging { .. })
    }

    /// Tells whether its engine's endpoint counts as down.
    #[must_use]
    pub const fn is_down(&self) -> bool {
        self.presence.is_down()
    }

    /// Tells whether a view that has `other` in this one's place would differ.
    fn same(&self, other: &Self) -> bool {
        let kind = |standing: &Standing| {
            (standing.routable, std::mem::discriminant(&standing.credit), standing.suspect)
        };
        kind(&self.standing) == kind(&other.standing) && self.card == other.card
    }
}

/// One holder among those of a model.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The holder.
    pub holder: Holder,
    /// Its worker.
    pub worker: Arc<Worker>,
}

/// What a client's model name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The model that is served.
    pub model: ModelName,
    /// The adapter asked for; empty for the model itself.
    pub adapter: String,
}

/// All workers known, as of one moment; immutable.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    version: u64,
    workers: BTreeMap<WorkerId, Arc<Worker>>,
    seats: BTreeMap<ModelName, Vec<Seat>>,
    names: HashMap<String, Served>,
}

impl Fleet {
    /// Builds a view from workers.
    pub(super) fn new(version: u64, workers: impl IntoIterator<Item = Worker>) -> Self {
        let mut fleet = Self { version, ..Self::default() };
        for worker in workers {
            let worker = Arc::new(worker);
            fleet.workers.insert(worker.card.worker.clone(), worker);
        }
        for worker in fleet.workers.values() {
            let seats = fleet.seats.entry(worker.card.model.clone()).or_default();
            seats.extend(worker.card.ranks.iter().map(|feed| Seat {
                holder: Holder { worker: worker.card.worker.clone(), rank: feed.rank },
                worker: Arc::clone(worker),
            }));
            let served =
                |adapter: &str| Served { model: worker.card.model.clone(), adapter: adapter.to_owned() };
            for adapter in &worker.card.adapters {
                fleet.names.entry(adapter.clone()).or_insert_with(|| served(adapter));
            }
            for alias in &worker.card.aliases {
                fleet.names.entry(alias.as_str().to_owned()).or_insert_with(|| served(""));
            }
        }
        for model in fleet.seats.keys() {
            let served = Served { model: model.clone(), adapter: String::new() };
            fleet.names.insert(model.as_str().to_owned(), served);
        }
        fleet
    }

    /// Grows with every published view of one process.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Lists the workers by name.
    #[must_use]
    pub fn workers(&self) -> impl ExactSizeIterator<Item = &Arc<Worker>> {
        self.workers.values()
    }

    /// Finds a worker.
    #[must_use]
    pub fn worker(&self, worker: &WorkerId) -> Option<&Arc<Worker>> {
        self.workers.get(worker)
    }

    /// Lists the models that some worker serves.
    #[must_use]
    pub fn models(&self) -> impl ExactSizeIterator<Item = &ModelName> {
        self.seats.keys()
    }

    /// Lists the names by which clients may ask: models, aliases and adapters, in no order.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = (&str, &Served)> {
        self.names.iter().map(|(name, served)| (name.as_str(), served))
    }

    /// Finds what a client's model name stands for; a model's own name wins over an alias, an alias over an adapter.
    #[must_use]
    pub fn served(&self, name: &str) -> Option<&Served> {
        self.names.get(name)
    }

    /// Lists a model's holders, by worker and rank.
    #[must_use]
    pub fn seats(&self, model: &ModelName) -> &[Seat] {
        self.seats.get(model).map_or(&[], Vec::as_slice)
    }

    /// Tells whether a request for a model could be tried somewhere now.
    #[must_use]
    pub fn takes_requests(&self, model: &ModelName) -> bool {
        self.seats(model).iter().any(|seat| seat.worker.takes_requests())
    }

    /// Splits a model's workers into pools whose cards agree; more than one is worth a report.
    #[must_use]
    pub fn pools(&self, model: &ModelName) -> Vec<Pool> {
        pools(self.workers.values().filter(|worker| worker.card.model == *model).map(|worker| &worker.card))
    }

    /// Lists the distinct block sizes among a model's workers, ascending.
    #[must_use]
    pub fn block_sizes(&self, model: &ModelName) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.seats(model).iter().map(|seat| seat.worker.card.block_size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the longest context among a model's workers, in tokens; none where there are none or one does not say.
    #[must_use]
    pub fn context_tokens_max(&self, model: &ModelName) -> Option<u32> {
        let contexts = self.seats(model).iter().map(|seat| seat.worker.card.limits.context_tokens_max);
        contexts.map(|tokens| if tokens == 0 { u32::MAX } else { tokens }).max().filter(|&max| max < u32::MAX)
    }

    /// Tells whether the views differ in more than their version.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.workers.len() != other.workers.len()
            || self
                .workers
                .iter()
                .zip(&other.workers)
                .any(|((a, ours), (b, theirs))| a != b || !ours.same(theirs))
    }
}
