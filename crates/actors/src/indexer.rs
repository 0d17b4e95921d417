//! Parent: the node · Asks: nobody
//! Bound: 64 waiting calls; blocks and holders as the limits say
//! When it dies: the last view serves on with the blocks it had; the next life begins empty under a new epoch, is filled by
//! the replicator, and takes over once every holder of the old view is live again, or 10 s have passed.

mod shelf;
mod store;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Fault, Me, Node, Reply, Spec, address};
use block_index::{Branch, Broken, Limits, Stats};
use identity::{Holder, Incarnation, KeySetDigest, ModelName};
use membership::Run;
use membership::replica::{Op, Phase, Status};
use ports::Clock;
use tokio::sync::watch;

pub use shelf::IndexShelf;
use store::Store;
pub(crate) use view::pulses;
pub use view::{HolderView, IndexView, agreement};

use crate::published::Published;

/// The index of one model; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct IndexerHandle {
    address: Address<Msg>,
    shown: Arc<Shown>,
}

/// What an indexer needs.
#[derive(Clone, Debug)]
pub struct IndexerArgs {
    /// The model whose blocks are indexed.
    pub model: ModelName,
    /// Bounds of the index.
    pub limits: Limits,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
}

/// Operations from the replicator, applied in order and published as one.
#[derive(Debug, Default)]
pub struct Batch {
    /// The epoch for which they are meant; none where the sender does not know it yet.
    pub epoch: Option<u64>,
    /// What is to be done, holder by holder.
    pub ops: Vec<(Holder, Op)>,
    /// Where holders stand after it; those not listed are unchanged.
    pub statuses: Vec<(Holder, Status)>,
    /// Holders that are not followed any more.
    pub forgotten: Vec<Holder>,
    /// Whether the replica is ready.
    pub ready: bool,
}

/// What became of a batch.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The index's epoch; where the batch was for another, nothing was applied.
    pub epoch: u64,
    /// Digests asked for, by holder and ticket.
    pub checks: Vec<(Holder, u32, KeySetDigest)>,
    /// Holders for which there was no room.
    pub refused: Vec<Holder>,
}

/// A holder's whole set, for another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Sequence of the last delta it contains.
    pub seq: u64,
    /// Its digest.
    pub digest: KeySetDigest,
    /// All keys, parents first.
    pub runs: Vec<Run>,
}

/// Why a set is not given to another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The holder is followed in another life.
    OtherLife {
        /// That life.
        present: Incarnation,
    },
    /// It is not followed, or not known to equal the agent's now.
    NotProven,
}

#[derive(Debug)]
struct Shown {
    model: ModelName,
    view: Published<IndexView>,
    ready: AtomicBool,
    epoch: AtomicU64,
}

impl IndexerHandle {
    /// Starts the indexer in a node, as `indexer/<model>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: IndexerArgs) -> Result<Self, actor_kit::node::Error> {
        let (_, reader) = block_index::new(Limits { holders_max: 1, blocks_max: 1 });
        let shown = Arc::new(Shown {
            model: args.model.clone(),
            view: Published::new(IndexView::empty(reader)),
            ready: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
        });
        let spec = Spec::new(format!("indexer/{}", args.model), MAILBOX_MAX);
        let address = node.supervise::<State>(spec, (args, Arc::clone(&shown))).await?;
        Ok(Self { address, shown })
    }

    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &ModelName {
        &self.shown.model
    }

    /// Returns the present view; no mailbox hop.
    #[must_use]
    pub fn view(&self) -> Arc<IndexView> {
        self.shown.view.load_full()
    }

    /// Watches the version of the view.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shown.view.changed()
    }

    /// Waits until the view satisfies a condition.
    pub async fn wait_for(&self, condition: impl Fn(&IndexView) -> bool) -> Arc<IndexView> {
        self.shown.view.wait_for(condition).await
    }

    /// Tells whether the replica was ready once; latches over restarts.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shown.ready.load(Ordering::Acquire)
    }

    /// Applies a batch; for the replicator, which sends the next one when this one is answered.
    ///
    /// # Errors
    /// The batch may or may not have been applied: measure every holder.
    pub async fn apply(&self, batch: Batch) -> Result<Outcome, address::Error> {
        self.address.call(APPLY_DEADLINE, |reply| Msg::Apply(batch, reply)).await
    }

    /// Measures the index.
    ///
    /// # Errors
    /// The indexer is busy or being restarted: answer without figures.
    pub async fn stats(&self) -> Result<Stats, address::Error> {
        self.address.call(ADMIN_DEADLINE, Msg::Stats).await
    }

    /// Copies a holder's set, if this replica follows it and knows it to be right; for another replica.
    ///
    /// Takes time in proportion to the set: about a millisecond for each 100,000 blocks.
    ///
    /// # Errors
    /// As for `stats`; the inner one tells why the set is withheld.
    pub async fn copy(
        &self,
        holder: Holder,
        incarnation: Incarnation,
    ) -> Result<Result<Copied, Withheld>, address::Error> {
        self.address.call(ADMIN_DEADLINE, |reply| Msg::Copy(holder, incarnation, reply)).await
    }

    /// Verifies every invariant of the index, at a cost in proportion to all blocks of all holders; for drills.
    ///
    /// # Errors
    /// As for `stats`; the inner one names the invariant that does not hold.
    pub async fn check(&self) -> Result<Result<(), Broken>, address::Error> {
        self.address.call(ADMIN_DEADLINE, Msg::Check).await
    }

    /// Lists the tree's runs down to `depth` levels and at most `limit` of them.
    ///
    /// # Errors
    /// As for `stats`.
    pub async fn tree(&self, depth: u32, limit: usize) -> Result<Vec<Branch>, address::Error> {
        self.address.call(ADMIN_DEADLINE, |reply| Msg::Tree(depth, limit, reply)).await
    }
}

const MAILBOX_MAX: usize = 64;
const APPLY_DEADLINE: Duration = Duration::from_secs(30);
const ADMIN_DEADLINE: Duration = Duration::from_secs(5);
/// How long a new life leaves the old view in place.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);
const SWEEP_PERIOD: Duration = Duration::from_millis(100);
/// Runs' worth of sweeping at a time, well below a millisecond.
const SWEEP_BUDGET: usize = 512;

#[derive(Debug)]
enum Msg {
    Apply(Batch, Reply<Outcome>),
    Stats(Reply<Stats>),
    Check(Reply<Result<(), Broken>>),
    Copy(Holder, Incarnation, Reply<Result<Copied, Withheld>>),
    Tree(u32, usize, Reply<Vec<Branch>>),
    Sweep,
}

struct State {
    shown: Arc<Shown>,
    clock: Arc<dyn Clock>,
    store: Store,
    epoch: u64,
    /// Until when an older life's view stays; none once this life's is published.
    takeover_by: Option<Duration>,
    _children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (IndexerArgs, Arc<Shown>);

    fn begin(me: Me<Msg>, (args, shown): Self::Args) -> Result<Self, Fault> {
        let epoch = shown.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        let mut children = Children::new(me, 1);
        children.tick(SWEEP_PERIOD, || Msg::Sweep)?;
        let takeover_by = (epoch > 1).then(|| args.clock.now() + TAKEOVER_MAX);
        let store = Store::new(args.limits);
        Ok(Self { shown, clock: args.clock, store, epoch, takeover_by, _children: children })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Apply(batch, reply) => reply.send(self.apply(batch)),
            Msg::Stats(reply) => reply.send(self.store.stats()),
            Msg::Copy(holder, life, reply) => reply.send(self.store.copy(&holder, life)),
            Msg::Check(reply) => reply.send(self.store.check()),
            Msg::Tree(depth, limit, reply) => reply.send(self.store.tree(depth, limit)),
            Msg::Sweep => self.sweep(),
        }
        Ok(())
    }
}

impl State {
    fn apply(&mut self, batch: Batch) -> Outcome {
        let mut outcome = Outcome { epoch: self.epoch, ..Outcome::default() };
        if batch.epoch.is_some_and(|epoch| epoch != self.epoch) {
            return outcome;
        }
        for (holder, op) in batch.ops {
            self.store.apply(holder, op, &mut outcome);
        }
        self.store.sweep(SWEEP_BUDGET);
        self.store.learn(batch.statuses, &batch.forgotten);
        if batch.ready {
            self.shown.ready.store(true, Ordering::Release);
        }
        self.publish();
        outcome
    }

    fn sweep(&mut self) {
        self.store.sweep(SWEEP_BUDGET);
        if self.takeover_by.is_some() {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let old = self.shown.view.load_full();
        if self.takeover_by.is_some_and(|by| self.clock.now() < by && !self.has_caught_up(&old)) {
            self.shown.view.replace(old.with_news(self.store.statuses()));
        } else {
            self.takeover_by = None;
            self.shown.view.replace(self.store.view(self.epoch));
        }
    }

    /// Tells whether every holder that counts in the old view is live in this life, or is known to have left.
    fn has_caught_up(&self, old: &IndexView) -> bool {
        let statuses = self.store.statuses();
        !statuses.is_empty()
            && old.holders().filter(|(_, view)| view.blocks > 0).all(|(holder, _)| {
                let phase = statuses.get(holder).map(|status| status.phase);
                matches!(phase, Some(Phase::Live | Phase::Repairing | Phase::Gone | Phase::Refused))
            })
    }
}
