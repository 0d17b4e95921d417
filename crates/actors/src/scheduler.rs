//! Parent: the node · Asks: nobody (directory, index, peers' load by published snapshots)
//! Bound: 8,192 waiting messages, the queue's limit of waiting requests
//! When it dies: reservations stay exact in the ledger; waiting requests ask again within their deadline; what it knew
//! of media, pending blocks and rates is learned anew.

mod ask;
mod assignment;
mod desk;
mod error;
mod ledger;
mod overlap;
mod request;
mod span;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Me, Node, Reply, Spec};
use arc_swap::ArcSwap;
use identity::{Holder, MediaKey, ModelName};
use membership::MediaRun;
use placement::{Decision, Queue, QueueLimits, Ruling, Ticket, Unplaced};
use ports::Clock;
use tokio::sync::{broadcast, watch};
use tracing::Instrument as _;
use wire::notice::Notices;

use ask::{Answer, Ask, Waiter};
use assignment::Outcome;
pub use assignment::{Assignment, Reservation};
pub use desk::DeskLimits;
use desk::{Desk, Placed};
pub use error::Error;
pub use ledger::{Account, Balance, HolderLoad, Ledger};
use overlap::Overlap;
pub use overlap::{IndexSource, NoIndex, Sight};
pub use request::{ScheduleRequest, Waiting, session};
pub use tally::Tally;

use crate::directory::DirectoryHandle;
use crate::load_board::{LoadBoardHandle, Peers};
use crate::replicator::MediaListener;

/// The scheduler of one model; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct SchedulerHandle {
    address: Address<Msg>,
    args: SchedulerArgs,
    tally: Arc<ArcSwap<Tally>>,
}

/// What a scheduler needs.
#[derive(Clone, Debug)]
pub struct SchedulerArgs {
    /// The model whose requests it places.
    pub model: ModelName,
    /// Who may serve them.
    pub directory: DirectoryHandle,
    /// What they have in KV.
    pub index: Arc<dyn IndexSource>,
    /// What this process has outstanding; one for all its schedulers.
    pub ledger: Ledger,
    /// What other frontends have outstanding; none where there are no others.
    pub board: Option<LoadBoardHandle>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// How much is remembered.
    pub limits: DeskLimits,
    /// How much waits.
    pub queue: QueueLimits,
    /// Random word of this frontend; frontends differ in it.
    pub seed: u64,
}

impl SchedulerHandle {
    /// Starts a model's scheduler in a node, as `scheduler/<model>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: SchedulerArgs) -> Result<Self, actor_kit::node::Error> {
        let spec = Spec::new(format!("scheduler/{}", args.model), MAILBOX_MAX);
        let (lives, tally) = (Arc::new(AtomicU32::new(0)), Arc::default());
        let address = node.supervise::<State>(spec, (args.clone(), lives, Arc::clone(&tally))).await?;
        Ok(Self { address, args, tally })
    }

    /// Places a request and reserves its work: at once, or after waiting for a busy holder.
    ///
    /// # Errors
    /// `Overloaded` is a 429; `UnknownWorker` and `UnknownRank` a 404; `Unservable` a 400; `NoWorker` and `Scheduler` a 503.
    pub async fn schedule(&self, request: ScheduleRequest) -> Result<Assignment, Error> {
        let until = self.args.clock.now() + request.waiting.wait_max;
        let request = Arc::new(request);
        let mut lives = 0;
        loop {
            let overlap = tracing::debug_span!("match").in_scope(|| self.overlap(&request))?;
            let deadline = until.saturating_sub(self.args.clock.now()) + ANSWER_DEADLINE;
            let ask = Box::new(Ask { request: Arc::clone(&request), overlap, until });
            let place = span::place();
            let answer = self.address.call(deadline, |reply| Msg::Schedule(ask, reply));
            match answer.instrument(place.clone()).await {
                Ok(Ok(placed)) => {
                    span::record(&place, &placed.decision, request.routing.prompt_tokens);
                    return Ok(self.hand_out(*placed));
                }
                Ok(Err(refused)) => return Err(refused),
                Err(actor_kit::address::Error::Died { .. }) if lives < LIVES_MAX => lives += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Decides where a request would go, without consequences; an unplaced one tells why, holder by holder.
    ///
    /// # Errors
    /// As `schedule`, but for those that the answer itself shows.
    pub async fn explain(&self, request: &ScheduleRequest) -> Result<Result<Decision, Unplaced>, Error> {
        let overlap = self.overlap(request)?;
        let until = self.args.clock.now();
        let ask = Box::new(Ask { request: Arc::new(request.clone()), overlap, until });
        Ok(self.address.call(ANSWER_DEADLINE, |reply| Msg::Explain(ask, reply)).await?)
    }

    /// Lists what is outstanding at each holder of all models; no mailbox hop.
    #[must_use]
    pub fn loads(&self) -> Vec<HolderLoad> {
        let peers = self.args.board.as_ref().map(LoadBoardHandle::peers).unwrap_or_default();
        self.args.ledger.loads(&peers)
    }

    /// Reports what came of a prediction; a quorum of wrong ones withdraws a holder's credit for a while.
    pub fn judged(&self, ruling: Ruling) {
        drop(self.address.offer(Msg::Judged(ruling)));
    }

    /// Returns what the scheduler counts; no mailbox hop.
    #[must_use]
    pub fn tally(&self) -> Tally {
        **self.tally.load()
    }

    fn overlap(&self, request: &ScheduleRequest) -> Result<Overlap, Error> {
        let fleet = self.args.directory.fleet();
        if let Some((worker, rank)) = &request.direct {
            let ours = fleet.worker(worker).filter(|it| it.card.model == self.args.model);
            let Some(it) = ours else { return Err(Error::UnknownWorker { worker: worker.clone() }) };
            if let Some(rank) = rank.filter(|rank| it.card.ranks.iter().all(|feed| feed.rank != *rank)) {
                return Err(Error::UnknownRank { worker: worker.clone(), rank });
            }
        }
        Ok(Overlap::read(&*self.args.index, fleet, &self.args.model, request))
    }

    fn hand_out(&self, placed: Placed) -> Assignment {
        let Placed { seat, decision, place, trace, predicted } = placed;
        let reservation = Reservation {
            place: Some(place),
            trace,
            predicted,
            clock: Arc::clone(&self.args.clock),
            address: self.address.clone(),
            computed: AtomicBool::new(false),
        };
        Assignment { worker: seat.worker, holder: seat.holder, decision, reservation }
    }
}

/// Media that deltas tell of feed residency: another frontend's requests bring them as well as this one's.
impl MediaListener for SchedulerHandle {
    fn computed(&self, holder: &Holder, runs: &[&MediaRun]) {
        let media = runs.iter().map(|run| run.id.key()).collect();
        drop(self.address.offer(Msg::HadMedia(holder.clone(), media)));
    }
}

const MAILBOX_MAX: usize = 8192;
const CHILDREN_MAX: usize = 4;
/// How long an answer may take beyond the request's own waiting.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// How many deaths of the actor one request survives.
const LIVES_MAX: u32 = 3;
/// How often what ends by time is looked for, and the queue looked through.
const TICK: Duration = Duration::from_millis(20);
/// Shortest time between two looks at a changing index.
const CONFIRM_PAUSE: Duration = Duration::from_millis(1);
/// Pause before looking again for an index that is not there yet.
const INDEX_RETRY: Duration = Duration::from_millis(200);
/// Ticks between two reconciliations with fleet and index.
const RECONCILE_TICKS: u64 = 12;
/// Waiting requests looked at whenever a holder becomes free.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
enum Msg {
    Schedule(Box<Ask>, Answer),
    Explain(Box<Ask>, Reply<Result<Decision, Unplaced>>),
    Came(Box<Outcome>),
    Judged(Ruling),
    HadMedia(Holder, Vec<MediaKey>),
    IndexChanged(Option<watch::Receiver<u64>>),
    Heard(broadcast::Receiver<Arc<Notices>>, Option<Arc<Notices>>),
    Unheard,
    Tick,
}

struct State {
    args: SchedulerArgs,
    desk: Desk,
    queue: Queue<Waiter>,
    ticks: u64,
    tally: Tally,
    published: Arc<ArcSwap<Tally>>,
    children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (SchedulerArgs, Arc<AtomicU32>, Arc<ArcSwap<Tally>>);

    fn begin(me: Me<Msg>, (args, lives, published): Self::Args) -> Result<Self, Fault> {
        let mut children = Children::new(me, CHILDREN_MAX);
        children.tick(TICK, || Msg::Tick)?;
        children.after(Duration::ZERO, Msg::IndexChanged(None))?;
        if let Some(board) = &args.board {
            children.after(Duration::ZERO, Msg::Heard(board.notices(), None))?;
        }
        // Dispatches are named for other frontends too: two runs of one frontend must not name them alike.
        let run = u32::try_from(args.clock.wall_ms() >> 10 & 0x3f_ffff).unwrap_or(0);
        let life = (run << 2).wrapping_add(lives.fetch_add(1, Ordering::Relaxed));
        let desk = Desk::new(args.model.clone(), args.ledger.clone(), args.limits, args.seed, life);
        let queue = Queue::new(args.queue);
        let tally = **published.load();
        Ok(Self { args, desk, queue, ticks: 0, children, tally, published })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Schedule(ask, answer) => self.schedule(ask, answer),
            Msg::Explain(ask, reply) => reply.send(self.explain(&ask)),
            Msg::Came(outcome) => self.came(*outcome),
            Msg::Judged(ruling) => self.desk.judged(&ruling, self.args.clock.now()),
            Msg::HadMedia(holder, media) => self.had_media(&holder, &media),
            Msg::IndexChanged(changes) => self.index_changed(changes)?,
            Msg::Heard(receiver, notices) => self.heard(receiver, notices)?,
            Msg::Unheard => {}
            Msg::Tick => self.tick(),
        }
        self.announce();
        Ok(())
    }
}

impl State {
    fn schedule(&mut self, ask: Box<Ask>, answer: Answer) {
        if answer.is_abandoned() {
            return;
        }
        let (now, peers) = (self.args.clock.now(), self.peers());
        match self.desk.assign(&ask.moment(&peers, now)) {
            Ok(placed) => {
                self.tally.placed += 1;
                answer.send(Ok(Box::new(placed)));
            }
            Err(unplaced) if unplaced.may_wait() => self.wait(ask, answer, now),
            Err(unplaced) => answer.send(Err(Error::of(&unplaced))),
        }
    }

    /// Lets a request wait; one that is less urgent may have to give way.
    fn wait(&mut self, ask: Box<Ask>, answer: Answer, now: Duration) {
        let waiting = ask.request.waiting;
        let Waiting { priority, tenant, weight, .. } = waiting;
        let ticket = Ticket { priority, tenant, weight, deadline: ask.until };
        self.tally.waited += 1;
        let put_out = match self.queue.push(ticket, Waiter { ask, answer }, now) {
            Ok(put_out) => put_out,
            Err((_, refused)) => Some(refused),
        };
        if let Some(waiter) = put_out {
            self.overloaded(waiter, now);
        }
    }

    fn overloaded(&mut self, waiter: Waiter, now: Duration) {
        self.tally.overloaded += 1;
        let retry_after = self.queue.full(now).retry_after;
        waiter.answer.send(Err(Error::Overloaded { retry_after }));
    }

    fn explain(&mut self, ask: &Ask) -> Result<Decision, Unplaced> {
        let peers = self.peers();
        self.desk.judge(&ask.moment(&peers, self.args.clock.now()))
    }

    fn came(&mut self, outcome: Outcome) {
        let now = self.args.clock.now();
        let frees = !matches!(outcome, Outcome::FirstToken(..));
        self.desk.came(outcome, &*self.args.index, now);
        if frees {
            self.serve_waiting(now);
        }
    }

    /// Holders that nobody can be placed on are not remembered.
    fn had_media(&mut self, holder: &Holder, media: &[MediaKey]) {
        let fleet = self.args.directory.fleet();
        if fleet.seats(&self.args.model).iter().any(|seat| seat.holder == *holder) {
            self.desk.had_media(holder, media, self.args.clock.now());
        }
    }

    /// Looks which pending blocks have come, and waits for the index's next change beside the handler.
    fn index_changed(&mut self, changes: Option<watch::Receiver<u64>>) -> Result<(), actor_kit::Full> {
        let Some(mut changes) = changes.or_else(|| self.args.index.changed(&self.args.model)) else {
            return self.children.after(INDEX_RETRY, Msg::IndexChanged(None)).map(drop);
        };
        changes.borrow_and_update();
        self.desk.confirm(&*self.args.index);
        let pause = self.args.clock.sleep(CONFIRM_PAUSE);
        let work = async move {
            pause.await;
            changes.changed().await.is_ok().then_some(changes)
        };
        let again = |outcome: Result<_, Failed>| Msg::IndexChanged(outcome.ok().flatten());
        self.children.pump(work, again).map(drop)
    }

    fn count(&mut self) {
        let (pending_blocks, settling) = self.desk.figures();
        self.tally = Tally { waiting: self.queue.len(), pending_blocks, settling, ..self.tally };
        if **self.published.load() != self.tally {
            self.published.store(Arc::new(self.tally));
        }
    }

    /// Takes note of what another frontend says, and listens on beside the handler.
    fn heard(
        &mut self,
        mut receiver: broadcast::Receiver<Arc<Notices>>,
        notices: Option<Arc<Notices>>,
    ) -> Result<(), actor_kit::Full> {
        if let Some(notices) = notices {
            let (fleet, now) = (self.args.directory.fleet(), self.args.clock.now());
            self.desk.hear(&notices, &fleet, &*self.args.index, now);
        }
        let work = async move {
            loop {
                match receiver.recv().await {
                    Ok(notices) => return Some((receiver, notices)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        };
        let next = |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((receiver, notices))) => Msg::Heard(receiver, Some(notices)),
            Ok(None) | Err(_) => Msg::Unheard,
        };
        self.children.pump(work, next).map(drop)
    }

    /// Tells other frontends what this one's dispatches will bring.
    fn announce(&mut self) {
        let notices = self.desk.unsaid();
        if let Some(board) = self.args.board.as_ref().filter(|_| !notices.is_empty()) {
            board.announce(notices);
        }
    }

    fn tick(&mut self) {
        let now = self.args.clock.now();
        self.desk.expire(now);
        for waiter in self.queue.put_out(now, |waiter| waiter.answer.is_abandoned()) {
            self.overloaded(waiter, now);
        }
        self.serve_waiting(now);
        self.ticks += 1;
        self.count();
        if self.ticks.is_multiple_of(RECONCILE_TICKS) {
            self.desk.reconcile(&self.args.directory.fleet(), &*self.args.index);
            self.args.directory.heard(self.args.index.pulses());
        }
    }

    /// Places waiting requests for as long as one can be placed.
    fn serve_waiting(&mut self, now: Duration) {
        while !self.queue.is_empty() {
            let peers = self.peers();
            let (desk, args) = (&mut self.desk, &self.args);
            let mut outcome = None;
            let served = self.queue.take(LOOKS_MAX, now, |waiter| {
                waiter.ask.refresh(args);
                outcome = match desk.assign(&waiter.ask.moment(&peers, now)) {
                    Ok(placed) => Some(Ok(Box::new(placed))),
                    Err(unplaced) if unplaced.may_wait() => None,
                    Err(unplaced) => Some(Err(Error::of(&unplaced))),
                };
                outcome.is_some()
            });
            let Some((waiter, outcome)) = served.zip(outcome) else { return };
            self.tally.placed += u64::from(outcome.is_ok());
            waiter.answer.send(outcome);
        }
    }

    fn peers(&self) -> Arc<Peers> {
        self.args.board.as_ref().map(LoadBoardHandle::peers).unwrap_or_default()
    }
}
