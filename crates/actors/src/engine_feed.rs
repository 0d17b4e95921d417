//! Parent: the node · Asks: nobody (feed, bus, engine and store through children)
//! Bound: 16 waiting calls, 12 children, 64 replicas waiting for one copy
//! When it dies: the next life loads the last checkpoint and has the engine replay the rest.

mod answers;
mod copies;
mod keep;
mod life;
mod listen;
mod serve;
mod session;
mod split;
mod status;

use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Full, Me, Node, Reply, Spec, address};
use bytes::Bytes;
use engine_events::Config;
use identity::{Holder, Incarnation, ModelName};
use ports::bus::{self, Received, Subscription};
use ports::engine::{Endpoint, EngineStatus};
use ports::event_feed::EventFeed;
use ports::{Bus, Clock, Engine, StateStore, state_store};
use tokio::sync::{Notify, watch};
use wire::sync::{Refusal, Snapshot};

pub use session::Tally;
pub use status::FeedStatus;

use copies::Copies;
use life::next_life;
use listen::{Arrival, End, carry_out};
use session::{Order, Session};
use status::Outlook;

use crate::published::Published;

/// Opens an engine's feed, as often as the actor needs a new one.
pub trait Feeds: Send + Sync + std::fmt::Debug {
    /// Opens the feed; nothing is connected before it is first waited for.
    fn open(&self) -> Box<dyn EventFeed>;
}

/// What follows one holder's engine; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct EngineFeedHandle {
    address: Address<Msg>,
    published: Arc<Published<FeedStatus>>,
}

/// What a feed needs.
#[derive(Clone, Debug)]
pub struct EngineFeedArgs {
    /// The namespace on the bus.
    pub namespace: String,
    /// The model that the engine serves.
    pub model: ModelName,
    /// The worker's rank whose cache is followed.
    pub holder: Holder,
    /// The engine's HTTP endpoint.
    pub endpoint: Endpoint,
    /// How events become keys.
    pub translation: Config,
    /// Tells apart lives that begin at the same time.
    pub seed: u64,
    /// The last life of which another agent is known to have spoken, which this feed's is later than; zero for none.
    pub after: Incarnation,
    /// Opens the engine's events.
    pub feeds: Arc<dyn Feeds>,
    /// Carries deltas and beats, and replicas' questions.
    pub bus: Arc<dyn Bus>,
    /// Asks the engine for its state.
    pub engine: Arc<dyn Engine>,
    /// Keeps checkpoints.
    pub store: Arc<dyn StateStore>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
}

impl EngineFeedHandle {
    /// Starts to follow an engine in a node, as `engine-feed/<model>/<worker>/<rank>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: EngineFeedArgs) -> Result<Self, actor_kit::node::Error> {
        let published = Arc::new(Published::new(FeedStatus::default()));
        let spec = Spec::new(name(&args), MAILBOX_MAX);
        let address = node.supervise::<State>(spec, (args, Arc::clone(&published))).await?;
        Ok(Self { address, published })
    }

    /// Returns the name under which a holder's feed runs and keeps its checkpoint.
    #[must_use]
    pub fn name(model: &ModelName, holder: &Holder) -> String {
        format!("engine-feed/{model}/{}/{}", holder.worker, holder.rank)
    }

    /// Returns the present state; no mailbox hop.
    #[must_use]
    pub fn status(&self) -> Arc<FeedStatus> {
        self.published.load_full()
    }

    /// Watches the version of the state.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.published.changed()
    }

    /// Saves a checkpoint now, as before a planned stop; answers whether it was kept.
    ///
    /// # Errors
    /// As [`Address::call`].
    pub async fn save(&self, deadline: Duration) -> Result<bool, address::Error> {
        self.address.call(deadline, Msg::Flush).await
    }

    /// Stops to follow the engine for good; what was not saved is learned anew by whoever follows it next.
    ///
    /// # Errors
    /// As [`Node::retire`].
    pub async fn retire(&self, node: &Node) -> Result<(), actor_kit::node::Error> {
        node.retire(self.address.name()).await
    }
}

fn name(args: &EngineFeedArgs) -> String {
    EngineFeedHandle::name(&args.model, &args.holder)
}

const MAILBOX_MAX: usize = 16;
const CHILDREN_MAX: usize = 12;
const QUESTIONS_MAX: usize = 1024;
const COPY_WAITERS_MAX: usize = 64;
const BEAT: Duration = Duration::from_secs(1);
const SAVE: Duration = Duration::from_secs(5);
const POLL_DEADLINE: Duration = Duration::from_secs(1);
const STORE_DEADLINE: Duration = Duration::from_secs(30);
const COPY_DEADLINE: Duration = Duration::from_secs(10);
const PUBLISH_DEADLINE: Duration = Duration::from_secs(1);
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// What one look at the engine found.
#[derive(Debug)]
struct Poll {
    /// When it was asked.
    asked: Duration,
    healthy: bool,
    status: Option<EngineStatus>,
}

type Cut = Result<(Snapshot, Vec<Bytes>), Refusal>;

#[derive(Debug)]
enum Msg {
    Loaded(Result<Option<Bytes>, state_store::Error>),
    Poll,
    Polled(Poll),
    Arrived(Box<dyn EventFeed>, Arrival),
    FeedLost,
    Subscribe,
    Subscribed(Result<Box<dyn Subscription>, bus::Error>),
    Asked(Box<dyn Subscription>, Received),
    Unsubscribed,
    Copied(Incarnation, Cut),
    Beat,
    Save,
    Saved(Stamp, bool),
    Flush(Reply<bool>),
}

type Stamp = (Incarnation, u64, Option<u64>);

/// How far the actor has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A checkpoint is looked for.
    Loading,
    /// The engine is asked what it is.
    Asking,
    /// Its feed is followed.
    Following,
}

struct State {
    args: EngineFeedArgs,
    published: Arc<Published<FeedStatus>>,
    subject: String,
    children: Children<Msg>,
    nudge: Arc<Notify>,
    /// None until the checkpoint was looked for and, without one, the engine has answered.
    session: Option<Session>,
    stage: Stage,
    outlook: Outlook,
    polling: bool,
    /// The feed, while the engine is asked who it is, and since when it waits.
    parked: Option<(Box<dyn EventFeed>, Duration)>,
    /// Whether the feed that is out was opened before the present life was known.
    outdated: bool,
    copies: Copies,
    copies_made: u64,
    copy_waiters: Vec<String>,
    saved: Option<Stamp>,
    saving: bool,
    flushes: Vec<Reply<bool>>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (EngineFeedArgs, Arc<Published<FeedStatus>>);

    fn begin(me: Me<Msg>, (args, published): Self::Args) -> Result<Self, Fault> {
        let mut children = Children::new(me, CHILDREN_MAX);
        children.tick(BEAT, || Msg::Beat)?;
        children.tick(SAVE, || Msg::Save)?;
        children.after(Duration::ZERO, Msg::Subscribe)?;
        let mut state = Self {
            subject: wire::subject::kv(&args.namespace, &args.model, &args.holder),
            args,
            published,
            children,
            nudge: Arc::new(Notify::new()),
            session: None,
            stage: Stage::Loading,
            outlook: Outlook::default(),
            polling: false,
            parked: None,
            outdated: false,
            copies: Copies::default(),
            copies_made: 0,
            copy_waiters: Vec::new(),
            saved: None,
            saving: false,
            flushes: Vec::new(),
        };
        state.load()?;
        Ok(state)
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Loaded(outcome) => self.loaded(outcome)?,
            Msg::Poll => self.poll()?,
            Msg::Polled(poll) => self.polled(poll)?,
            Msg::Arrived(feed, arrival) => self.arrived(feed, arrival)?,
            Msg::FeedLost => self.reopen()?,
            Msg::Subscribe => self.subscribe()?,
            Msg::Subscribed(Ok(subscription)) => self.hear(subscription)?,
            Msg::Asked(subscription, received) => {
                self.hear(subscription)?;
                self.asked(received).await?;
            }
            Msg::Subscribed(Err(_)) | Msg::Unsubscribed => {
                self.children.after(SUBSCRIBE_PAUSE, Msg::Subscribe)?;
            }
            Msg::Copied(incarnation, cut) => self.copied(incarnation, cut).await,
            Msg::Beat => self.beat().await?,
            Msg::Save => self.save()?,
            Msg::Saved(stamp, kept) => self.saved(stamp, kept)?,
            Msg::Flush(reply) => self.flush(reply)?,
        }
        self.publish_deltas().await;
        self.publish_status();
        Ok(())
    }
}

/// The engine and its feed.
impl State {
    fn load(&mut self) -> Result<(), Full> {
        let (store, name) = (Arc::clone(&self.args.store), name(&self.args));
        let work = async move { store.load(&name).await };
        let done = |outcome: Result<_, Failed>| Msg::Loaded(outcome.unwrap_or(Ok(None)));
        self.children.run(STORE_DEADLINE, work, done).map(drop)
    }

    fn loaded(&mut self, outcome: Result<Option<Bytes>, state_store::Error>) -> Result<(), Full> {
        self.stage = Stage::Asking;
        let worker = &self.args.holder.worker;
        let bytes = outcome.unwrap_or_else(|error| {
            tracing::warn!(%worker, %error, "checkpoint cannot be read, starting without");
            None
        });
        self.session = bytes.and_then(|bytes| match keep::resume(&self.args, &bytes) {
            Ok(session) => Some(session),
            Err(error) => {
                tracing::warn!(%worker, %error, "checkpoint cannot be used, starting without");
                None
            }
        });
        if let Some(session) = &self.session {
            let (incarnation, blocks) = (session.incarnation(), session.translator().blocks());
            tracing::info!(%worker, %incarnation, blocks, "resuming from checkpoint");
        }
        self.succeed(self.args.after);
        self.poll()
    }

    fn poll(&mut self) -> Result<(), Full> {
        if self.polling || self.stage == Stage::Loading {
            return Ok(());
        }
        let (engine, endpoint) = (Arc::clone(&self.args.engine), self.args.endpoint.clone());
        let asked = self.args.clock.now();
        let work = async move {
            let healthy = engine.health(&endpoint, POLL_DEADLINE).await.is_ok();
            let status = engine.status(&endpoint, POLL_DEADLINE).await.ok();
            Poll { asked, healthy, status }
        };
        let done = move |outcome: Result<Poll, Failed>| {
            Msg::Polled(outcome.unwrap_or(Poll { asked, healthy: false, status: None }))
        };
        self.children.run(POLL_DEADLINE * 3, work, done)?;
        self.polling = true;
        Ok(())
    }

    fn polled(&mut self, poll: Poll) -> Result<(), Full> {
        self.polling = false;
        self.outlook.saw(poll.healthy, poll.status.as_ref(), self.args.holder.rank);
        let Some(status) = poll.status else {
            if self.parked.is_some() {
                self.children.after(POLL_PAUSE, Msg::Poll)?;
            }
            return Ok(());
        };
        let Some(session) = &mut self.session else {
            let (after, wall_ms) = (Some(self.args.after), self.args.clock.wall_ms());
            let life = next_life(after, status.started_ms, wall_ms, self.args.seed);
            let (model, holder) = (self.args.model.clone(), self.args.holder.clone());
            let mut session =
                Session::begin(model, holder, self.args.translation.clone(), life, status.started_ms);
            session.learn_pool(status.kv_blocks);
            self.session = Some(session);
            self.outlook.life_since = poll.asked;
            self.stage = Stage::Following;
            return self.reopen();
        };
        session.learn_pool(status.kv_blocks);
        if std::mem::replace(&mut self.stage, Stage::Following) != Stage::Following {
            // Resumed: whether this is still the engine of the checkpoint, its batches alone may not tell.
            if !session.is_of(status.started_ms) {
                self.begin_life(status.started_ms);
            }
            return self.reopen();
        }
        if let Some((feed, since)) = self.parked.take() {
            if poll.asked < since {
                self.parked = Some((feed, since));
                return self.poll();
            }
            let Some(order) = session.on_identity(status.started_ms) else {
                self.begin_life(status.started_ms);
                return self.reopen();
            };
            return self.send_out(feed, order);
        }
        if session.is_outlived(status.started_ms) {
            self.begin_life(status.started_ms);
            self.outdated = true;
            self.nudge.notify_one();
        } else if let Some(started) = status.started_ms.filter(|_| poll.asked >= self.outlook.life_since) {
            session.learn_start(started);
        }
        Ok(())
    }

    /// Begins another life. What the present feed still brings may be of an earlier one: it has to be opened anew.
    fn begin_life(&mut self, started_ms: Option<u64>) {
        let Some(session) = &mut self.session else { return };
        let before = session.incarnation();
        let life = next_life(Some(before), started_ms, self.args.clock.wall_ms(), self.args.seed);
        tracing::info!(worker = %self.args.holder.worker, incarnation = %life, %before, "engine has begun another life");
        self.copies.clear();
        self.outlook.life_since = self.args.clock.now();
        session.begin_life(life, started_ms);
    }

    /// Opens the feed anew and begins by asking what was missed.
    fn reopen(&mut self) -> Result<(), Full> {
        let Some(session) = &self.session else { return Ok(()) };
        self.outdated = false;
        let order = session.verify();
        self.send_out(self.args.feeds.open(), order)
    }

    fn send_out(&mut self, mut feed: Box<dyn EventFeed>, order: Order) -> Result<(), Full> {
        if order == Order::Identify {
            self.parked = Some((feed, self.args.clock.now()));
            return self.poll();
        }
        let (nudge, clock) = (Arc::clone(&self.nudge), Arc::clone(&self.args.clock));
        let work = async move {
            let arrival = carry_out(&mut *feed, order, nudge, clock).await;
            (feed, arrival)
        };
        let ended = |outcome| match outcome {
            Ok((feed, arrival)) => Msg::Arrived(feed, arrival),
            Err(_) => Msg::FeedLost,
        };
        self.children.pump(work, ended).map(drop)
    }

    fn arrived(&mut self, feed: Box<dyn EventFeed>, arrival: Arrival) -> Result<(), Full> {
        if self.outdated {
            drop(feed);
            return self.reopen();
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        if matches!(arrival.end, End::Connected) || !arrival.frames.is_empty() {
            self.outlook.feed_works(&self.args.holder);
        }
        let followed = session.on_frames(arrival.frames);
        let order = match (followed, arrival.end) {
            (Order::Listen, End::Connected | End::Idle | End::Nudged) => session.verify(),
            (Order::Listen, End::Replayed { from, replay }) => session.on_replay(from, replay),
            (Order::Listen, End::Rested) => session.go_on(),
            (Order::Listen, End::Failed(error)) => {
                self.outlook.feed_failed(&self.args.holder, &error);
                Order::Listen
            }
            (order, _) => order,
        };
        self.send_out(feed, order)
    }

    fn publish_status(&mut self) {
        let status = self.outlook.status(self.session.as_ref());
        let before = self.published.load();
        if status.tally.losses > before.tally.losses {
            tracing::info!(worker = %self.args.holder.worker, "history of the engine's cache was lost, learning anew");
        }
        if **before != status {
            self.published.replace(status);
        }
    }
}
