//! What this process has outstanding at each holder; exact whichever actor dies.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use identity::{Holder, ModelName};
use placement::{Gauge, Gauges};

use crate::load_board::Peers;

/// The process's gauges by holder; cheap to clone, shared by schedulers, guards and the load board.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: Arc<ArcSwap<BTreeMap<Holder, Account>>>,
    /// Accounts opened so far: an account opened again must not repeat versions that peers have seen.
    opened: Arc<AtomicU64>,
}

/// One holder's entry.
#[derive(Clone, Debug)]
pub struct Account {
    /// The model its worker serves.
    pub model: ModelName,
    /// What is outstanding.
    pub gauge: Arc<Gauge>,
}

/// One holder's entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The model its worker serves.
    pub model: ModelName,
    /// The holder.
    pub holder: Holder,
    /// Grows with every change.
    pub version: u64,
    /// What is outstanding.
    pub gauges: Gauges,
}

/// What is outstanding at one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderLoad {
    /// This process's part.
    pub own: Balance,
    /// The other frontends' parts, by name, where not zero.
    pub peers: Vec<(String, Gauges)>,
}

impl Ledger {
    /// Returns a holder's gauge, opening an account where there is none.
    #[must_use]
    pub fn gauge(&self, model: &ModelName, holder: &Holder) -> Arc<Gauge> {
        if let Some(account) = self.accounts.load().get(holder) {
            return Arc::clone(&account.gauge);
        }
        let generation = self.opened.fetch_add(1, Ordering::Relaxed);
        let opened =
            Account { model: model.clone(), gauge: Arc::new(Gauge::after_version(generation << 32)) };
        self.accounts.rcu(|accounts| {
            let mut accounts = BTreeMap::clone(accounts);
            accounts.entry(holder.clone()).or_insert_with(|| opened.clone());
            accounts
        });
        self.accounts.load().get(holder).map_or(opened.gauge, |account| Arc::clone(&account.gauge))
    }

    /// Reads what is outstanding at a holder.
    #[must_use]
    pub fn gauges(&self, holder: &Holder) -> Gauges {
        self.accounts.load().get(holder).map_or_else(Gauges::default, |account| account.gauge.read().1)
    }

    /// Reads all accounts, by holder.
    #[must_use]
    pub fn balances(&self) -> Vec<Balance> {
        let accounts = self.accounts.load();
        let balance = |(holder, account): (&Holder, &Account)| {
            let (version, gauges) = account.gauge.read();
            Balance { model: account.model.clone(), holder: holder.clone(), version, gauges }
        };
        accounts.iter().map(balance).collect()
    }

    /// Reads all accounts together with what other frontends have outstanding at the same holders.
    pub(super) fn loads(&self, peers: &Peers) -> Vec<HolderLoad> {
        let mut theirs: HashMap<&Holder, Vec<(String, Gauges)>> = HashMap::new();
        for (frontend, holder, gauges) in peers.readings() {
            theirs.entry(holder).or_default().push((frontend.to_owned(), gauges));
        }
        let load = |own: Balance| HolderLoad { peers: theirs.remove(&own.holder).unwrap_or_default(), own };
        self.balances().into_iter().map(load).collect()
    }

    /// Closes the idle accounts of a model's holders that no longer exist.
    ///
    /// Only the model's scheduler, which alone opens reservations there, may call this. Answers whether any was closed:
    /// gauges held from before may not be of this ledger any more.
    pub(super) fn close_idle(&self, model: &ModelName, exists: impl Fn(&Holder) -> bool) -> bool {
        let closable = |holder: &Holder, account: &Account| {
            account.model == *model && !exists(holder) && account.gauge.read().1.is_idle()
        };
        let any = self.accounts.load().iter().any(|(holder, account)| closable(holder, account));
        if any {
            self.accounts.rcu(|accounts| {
                let kept = accounts.iter().filter(|(holder, account)| !closable(holder, account));
                kept.map(|(holder, account)| (holder.clone(), account.clone())).collect::<BTreeMap<_, _>>()
            });
        }
        any
    }
}
