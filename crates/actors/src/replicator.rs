//! Parent: the node · Asks: the indexer (through a child, one batch at a time); agents, and while it joins another replica,
//! over the bus (children, at most 8)
//! Bound: one batch of 256 messages under way from the bus, the rest waits in the subscription and gives way to a gap
//! When it dies: the index and its view stay; the next life measures every holder against what the index has and fetches
//! only what differs.

mod inbox;
mod media_listener;
mod peers;
mod question;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Full, Me, Node, Reply, Spec, address};
use identity::{Holder, Incarnation, ModelName};
use membership::replica::{Answer, Ask, Effect, Event, Op, Policy, Replicas};
use ports::bus::Link;
use ports::{Bus, Clock};
use tokio::sync::watch;
use tracing::Instrument as _;
use wire::kv::Update;

use crate::directory::DirectoryHandle;
use crate::indexer::{Batch, IndexerHandle, Outcome};
use crate::peer_desk::{PeerDeskArgs, PeerDeskHandle};

pub use media_listener::MediaListener;

/// Which holders have cards; the directory, or a stand-in for it.
pub trait CardSource: Send + Sync + fmt::Debug {
    /// Lists a model's holders with the oldest life that counts; none while no card is known of.
    fn carded(&self, model: &ModelName) -> Option<BTreeMap<Holder, Incarnation>>;

    /// Watches for changes of the list.
    fn changed(&self) -> watch::Receiver<u64>;
}

impl CardSource for DirectoryHandle {
    fn carded(&self, model: &ModelName) -> Option<BTreeMap<Holder, Incarnation>> {
        let fleet = self.fleet();
        let seats = fleet.seats(model).iter();
        let carded = seats.map(|seat| (seat.holder.clone(), seat.worker.card.incarnation));
        (fleet.version() > 0).then(|| carded.collect())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        Self::changed(self)
    }
}

/// Keeps the index of one model equal to what the agents say; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct ReplicatorHandle {
    address: Address<Msg>,
}

/// What a replicator needs.
#[derive(Clone, Debug)]
pub struct ReplicatorArgs {
    /// The namespace of the subjects.
    pub namespace: String,
    /// The model whose holders are followed.
    pub model: ModelName,
    /// Where deltas and beats come from and questions go.
    pub bus: Arc<dyn Bus>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// Writes the index.
    pub indexer: IndexerHandle,
    /// Knows which holders to wait for.
    pub cards: Arc<dyn CardSource>,
    /// Who hears of the media that deltas tell of.
    pub listeners: Vec<Arc<dyn MediaListener>>,
    /// When to act, and how much to keep.
    pub policy: Policy,
    /// Most blocks that are fetched for one holder.
    pub blocks_max: u64,
    /// Decides jitter, and names this replica among the model's.
    pub seed: u64,
}

/// What a replicator counted since its life began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages of the subjects.
    pub messages: u64,
    /// Messages that are none of ours, or malformed.
    pub rejected: u64,
    /// Gaps that the bus reported.
    pub gaps: u64,
    /// Requests to agents and other replicas.
    pub asked: u64,
    /// Sets that another replica gave.
    pub from_peers: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Batches whose outcome is unknown.
    pub lost_batches: u64,
}

impl ReplicatorHandle {
    /// Starts the replicator in a node, as `replicator/<model>`, and a [`PeerDeskHandle`] beside it.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: ReplicatorArgs) -> Result<Self, actor_kit::node::Error> {
        let desk = PeerDeskArgs {
            namespace: args.namespace.clone(),
            model: args.model.clone(),
            peer: args.seed,
            bus: Arc::clone(&args.bus),
            clock: Arc::clone(&args.clock),
            indexer: args.indexer.clone(),
        };
        PeerDeskHandle::start(node, desk).await?;
        let spec = Spec::new(format!("replicator/{}", args.model), MAILBOX_MAX);
        Ok(Self { address: node.supervise::<State>(spec, args).await? })
    }

    /// Returns what was counted.
    ///
    /// # Errors
    /// The replicator is being restarted: answer without figures.
    pub async fn tally(&self) -> Result<Tally, address::Error> {
        self.address.call(ADMIN_DEADLINE, Msg::Tally).await
    }
}

const MAILBOX_MAX: usize = 64;
const ADMIN_DEADLINE: Duration = Duration::from_secs(5);
const APPLY_DEADLINE: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(50);
/// Operations that wait for the index before the feed is made to wait.
const OPS_MAX: usize = 4_096;
/// Children beside requests: the feed, the ticks, a batch under way.
const CHILDREN_FIXED: usize = 3;

#[derive(Debug)]
enum Msg {
    Heard(inbox::Heard, Reply<()>),
    FeedEnded(Result<(), Failed>),
    Answered(Holder, u32, question::Outcome),
    Applied(Result<Outcome, address::Error>),
    Tick,
    Tally(Reply<Tally>),
}

struct State {
    args: ReplicatorArgs,
    peers: Arc<peers::Peers>,
    replicas: Replicas,
    children: Children<Msg>,
    cards_changed: watch::Receiver<u64>,
    cards_known: bool,
    link: watch::Receiver<Link>,
    link_was_down: bool,
    epoch: Option<u64>,
    applying: bool,
    ops: Vec<(Holder, Op)>,
    touched: BTreeSet<Holder>,
    /// The feed's turn that waits until the index has caught up.
    held: Option<Reply<()>>,
    tally: Tally,
}

impl Actor for State {
    type Msg = Msg;
    type Args = ReplicatorArgs;

    fn begin(me: Me<Msg>, args: ReplicatorArgs) -> Result<Self, Fault> {
        let mut children = Children::new(me, args.policy.asks_max + CHILDREN_FIXED);
        children.tick(TICK, || Msg::Tick)?;
        let (bus, pattern) =
            (Arc::clone(&args.bus), wire::subject::kv_of_model(&args.namespace, &args.model));
        let clock = Arc::clone(&args.clock);
        children.feed(|outlet| inbox::read(bus, clock, pattern, outlet), Msg::FeedEnded)?;
        let now = args.clock.now();
        let mut replicas = Replicas::new(args.policy, args.seed, now);
        for (holder, known) in args.indexer.view().holders() {
            if let Some(incarnation) = known.incarnation {
                drop(replicas.step(holder, Event::Known(incarnation), now));
            }
        }
        let peers = peers::Peers::new(Arc::clone(&args.bus), &args.namespace, &args.model, args.seed);
        Ok(Self {
            peers: Arc::new(peers),
            replicas,
            cards_changed: args.cards.changed(),
            link: args.bus.link(),
            args,
            children,
            cards_known: false,
            link_was_down: false,
            epoch: None,
            applying: false,
            ops: Vec::new(),
            touched: BTreeSet::new(),
            held: None,
            tally: Tally::default(),
        })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Heard(heard, reply) => self.heard(heard, reply)?,
            Msg::FeedEnded(outcome) => return Err(format!("bus subscription ended: {outcome:?}").into()),
            Msg::Answered(holder, ticket, outcome) => self.answered(&holder, ticket, outcome)?,
            Msg::Applied(outcome) => self.applied(outcome)?,
            Msg::Tick => self.tick()?,
            Msg::Tally(reply) => reply.send(self.tally),
        }
        self.flush()?;
        Ok(())
    }
}

impl State {
    fn heard(&mut self, heard: inbox::Heard, reply: Reply<()>) -> Result<(), Full> {
        self.tally.gaps += heard.gaps;
        self.tally.rejected += heard.malformed;
        let now = self.args.clock.now();
        for update in heard.updates {
            self.tally.messages += 1;
            let (holder, scheme, model, event) = match update {
                Update::Delta(delta) => {
                    (delta.holder(), delta.scheme.clone(), delta.model.clone(), Event::Delta(delta))
                }
                Update::Beat(beat) => {
                    (beat.holder(), beat.scheme.clone(), beat.model.clone(), Event::Beat(beat))
                }
            };
            if scheme != identity::SCHEME || model != self.args.model {
                self.tally.rejected += 1;
                continue;
            }
            if let Event::Delta(delta) = &event {
                media_listener::tell(&self.args.listeners, delta);
            }
            self.step(&holder, event, now)?;
        }
        if self.ops.len() < OPS_MAX {
            reply.send(());
        } else {
            self.held = Some(reply);
        }
        Ok(())
    }

    fn step(&mut self, holder: &Holder, event: Event, now: Duration) -> Result<(), Full> {
        let effects = self.replicas.step(holder, event, now);
        self.touched.insert(holder.clone());
        self.perform(effects)
    }

    fn perform(&mut self, effects: Vec<(Holder, Effect)>) -> Result<(), Full> {
        for (holder, effect) in effects {
            match effect {
                Effect::Index(op) => {
                    self.touched.insert(holder.clone());
                    self.ops.push((holder, op));
                }
                Effect::Ask { ticket, ask } => self.ask(holder, ticket, ask)?,
            }
        }
        Ok(())
    }

    /// Has a child ask the agent, or another replica.
    fn ask(&mut self, holder: Holder, ticket: u32, ask: Ask) -> Result<(), Full> {
        self.tally.asked += 1;
        let subject = wire::subject::sync(&self.args.namespace, &self.args.model, &holder);
        let asker = question::Asker {
            bus: Arc::clone(&self.args.bus),
            holder: holder.clone(),
            subject,
            peers: Arc::clone(&self.peers),
            blocks_max: self.args.blocks_max,
        };
        let span = tracing::debug_span!(parent: None, "repair", worker = %holder.worker);
        let done = move |outcome: Result<question::Outcome, Failed>| {
            Msg::Answered(holder, ticket, outcome.unwrap_or(question::Outcome::Answer(Answer::Failed)))
        };
        self.children.run(question::DEADLINE, asker.ask(ask).instrument(span), done).map(drop)
    }

    fn answered(&mut self, holder: &Holder, ticket: u32, outcome: question::Outcome) -> Result<(), Full> {
        let now = self.args.clock.now();
        let answer = match outcome {
            question::Outcome::Answer(answer) => answer,
            question::Outcome::FromPeer(answer) => {
                self.tally.from_peers += 1;
                answer
            }
            question::Outcome::TooManyBlocks => {
                self.step(holder, Event::NoRoom, now)?;
                Answer::Failed
            }
        };
        self.tally.failed += u64::from(answer == Answer::Failed);
        self.step(holder, Event::Answered { ticket, answer }, now)
    }

    fn tick(&mut self) -> Result<(), Full> {
        let now = self.args.clock.now();
        if !self.cards_known || self.cards_changed.has_changed().unwrap_or(false) {
            self.cards_changed.borrow_and_update();
            self.learn_cards(now)?;
        }
        let down = *self.link.borrow() == Link::Down;
        if std::mem::replace(&mut self.link_was_down, down) && !down {
            let effects = self.replicas.step_all(&Event::LinkUp, now);
            self.perform(effects)?;
        }
        let before: Vec<_> =
            self.replicas.statuses().map(|(holder, status)| (holder.clone(), status.phase)).collect();
        let effects = self.replicas.tick(now);
        self.perform(effects)?;
        for (holder, phase) in before {
            if self.replicas.status(&holder).map(|status| status.phase) != Some(phase) {
                self.touched.insert(holder);
            }
        }
        Ok(())
    }

    fn learn_cards(&mut self, now: Duration) -> Result<(), Full> {
        let Some(carded) = self.args.cards.carded(&self.args.model) else { return Ok(()) };
        self.cards_known = true;
        self.touched.extend(carded.keys().cloned());
        let effects = self.replicas.set_carded(carded, now);
        self.perform(effects)
    }

    /// Sends the index what has gathered, unless a batch is under way.
    fn flush(&mut self) -> Result<(), Full> {
        let now = self.args.clock.now();
        let ready = self.replicas.is_ready(now);
        let newly_ready = ready && !self.args.indexer.is_ready();
        if self.applying || (self.ops.is_empty() && self.touched.is_empty() && !newly_ready) {
            return Ok(());
        }
        let mut batch =
            Batch { epoch: self.epoch, ops: std::mem::take(&mut self.ops), ready, ..Batch::default() };
        for holder in std::mem::take(&mut self.touched) {
            match self.replicas.status(&holder).cloned() {
                Some(status) => batch.statuses.push((holder, status)),
                None => batch.forgotten.push(holder),
            }
        }
        let indexer = self.args.indexer.clone();
        let done = |outcome: Result<Result<Outcome, address::Error>, Failed>| {
            let lost = address::Error::Died { actor: "indexer".to_owned() };
            Msg::Applied(outcome.unwrap_or(Err(lost)))
        };
        self.children.run(APPLY_DEADLINE, async move { indexer.apply(batch).await }, done)?;
        self.applying = true;
        Ok(())
    }

    fn applied(&mut self, outcome: Result<Outcome, address::Error>) -> Result<(), Full> {
        self.applying = false;
        let now = self.args.clock.now();
        match outcome {
            Ok(outcome) if self.epoch.is_none_or(|epoch| epoch == outcome.epoch) => {
                self.epoch = Some(outcome.epoch);
                for (holder, ticket, digest) in outcome.checks {
                    self.step(&holder, Event::Checked { ticket, digest }, now)?;
                }
                for holder in outcome.refused {
                    self.step(&holder, Event::NoRoom, now)?;
                }
            }
            Ok(outcome) => self.begin_epoch(Some(outcome.epoch), now)?,
            Err(error) => {
                tracing::debug!(%error, "batch lost, measuring every holder");
                self.tally.lost_batches += 1;
                self.begin_epoch(None, now)?;
            }
        }
        if let Some(reply) = self.held.take() {
            reply.send(());
        }
        Ok(())
    }

    /// Builds up an index that lacks something, or everything.
    fn begin_epoch(&mut self, epoch: Option<u64>, now: Duration) -> Result<(), Full> {
        self.epoch = epoch;
        self.ops.clear();
        let holders: Vec<Holder> = self.replicas.statuses().map(|(holder, _)| holder.clone()).collect();
        self.touched.extend(holders);
        let effects = self.replicas.step_all(&Event::IndexReset, now);
        self.perform(effects)
    }
}
