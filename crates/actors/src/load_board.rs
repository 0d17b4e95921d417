//! Parent: the node · Asks: nobody (the bus through children)
//! Bound: 16 waiting messages, 4 children, 1,024 peers of 65,536 entries
//! When it dies: the last board stays published; the next life resumes from it and says its whole vector at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Address, Children, Failed, Mail, Node, Spec};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt as _;
use identity::{Holder, Incarnation};
use placement::{Board, BoardLimits, Gauges, Reading, Report};
use ports::bus::{self, Link, Message, Received, Subscription};
use ports::{Bus, Clock};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::scheduler::{Balance, Ledger};

/// The board on which frontends show each other their load; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct LoadBoardHandle {
    published: Arc<ArcSwap<Peers>>,
}

/// What a load board needs.
#[derive(Clone, Debug)]
pub struct LoadBoardArgs {
    /// The namespace whose frontends share their load.
    pub namespace: String,
    /// This frontend's name, unique in the namespace.
    pub frontend: String,
    /// This frontend's life.
    pub incarnation: Incarnation,
    /// Where gauges travel.
    pub bus: Arc<dyn Bus>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// What this process has outstanding.
    pub ledger: Ledger,
    /// How much is believed of others.
    pub limits: BoardLimits,
}

/// What the other frontends have outstanding.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    board: Board,
    totals: HashMap<Holder, Gauges>,
}

impl Peers {
    /// Sums what all others have outstanding at a holder.
    #[must_use]
    pub fn total(&self, holder: &Holder) -> Gauges {
        self.totals.get(holder).copied().unwrap_or_default()
    }

    /// Lists what each other frontend has outstanding, where that is anything.
    pub fn readings(&self) -> impl Iterator<Item = (&str, &Holder, Gauges)> {
        self.board.readings()
    }

    /// Counts the other frontends that are heard.
    #[must_use]
    pub fn count(&self) -> usize {
        self.board.peers()
    }
}

impl LoadBoardHandle {
    /// Starts the board in a node, as `load-board/<frontend>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: LoadBoardArgs) -> Result<Self, actor_kit::node::Error> {
        let published = Arc::new(ArcSwap::from_pointee(Peers::default()));
        let spec = Spec::new(format!("load-board/{}", args.frontend), MAILBOX_MAX);
        let _address: Address<Msg> = node.supervise(spec, Behaviour, (args, Arc::clone(&published))).await?;
        Ok(Self { published })
    }

    /// Returns what the other frontends have outstanding; no mailbox hop.
    #[must_use]
    pub fn peers(&self) -> Arc<Peers> {
        self.published.load_full()
    }
}

const MAILBOX_MAX: usize = 16;
const CHILDREN_MAX: usize = 4;
/// A change is said within this and a turn of the mailbox.
const CHANGE_PERIOD: Duration = Duration::from_millis(40);
const WHOLE_PERIOD: Duration = Duration::from_secs(1);
const PUBLISH_DEADLINE: Duration = Duration::from_secs(1);
const SUBSCRIBE_RETRY: Duration = Duration::from_millis(500);
const QUEUE_MAX: usize = 4096;
/// Messages read from the subscription at a time.
const BATCH_MAX: usize = 256;
/// Entries per message: 100 bytes each keep it well below the bus's limit.
const ENTRIES_MAX: usize = 4096;

#[derive(Debug)]
enum Msg {
    Subscribe,
    Subscribed(Result<Box<dyn Subscription>, bus::Error>),
    Received(Box<dyn Subscription>, Vec<Received>),
    Ended,
    Published(bool),
    Tick,
}

#[derive(Clone, Copy, Debug)]
struct Behaviour;

struct State {
    args: LoadBoardArgs,
    published: Arc<ArcSwap<Peers>>,
    board: Board,
    said: HashMap<Holder, u64>,
    whole_at: Duration,
    publishing: bool,
    link: Link,
    children: Children,
}

impl Actor for Behaviour {
    type Msg = Mail<Msg>;
    type State = State;
    type Arguments = (LoadBoardArgs, Arc<ArcSwap<Peers>>);

    async fn pre_start(
        &self,
        me: ActorRef<Mail<Msg>>,
        (args, published): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let mut children = Children::new(CHILDREN_MAX);
        children.tick(&me, CHANGE_PERIOD, || Msg::Tick)?;
        children.after(&me, Duration::ZERO, Msg::Subscribe)?;
        let mut board = published.load().board.clone();
        board.resume(args.clock.now());
        let link = *args.bus.link().borrow();
        Ok(State {
            board,
            said: HashMap::new(),
            whole_at: Duration::ZERO,
            publishing: false,
            link,
            children,
            args,
            published,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<Mail<Msg>>,
        mail: Mail<Msg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let now = state.args.clock.now();
        match mail.open() {
            Msg::Subscribe => state.subscribe(&me)?,
            Msg::Subscribed(Ok(subscription)) => state.listen(&me, subscription)?,
            Msg::Subscribed(Err(error)) => state.subscribe_later(&me, &error.to_string())?,
            Msg::Ended => state.subscribe_later(&me, "subscription ended")?,
            Msg::Received(subscription, received) => {
                state.hear(received, now);
                state.listen(&me, subscription)?;
            }
            Msg::Published(sent) => state.published(sent),
            Msg::Tick => state.tick(&me, now)?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<Mail<Msg>>,
        _event: SupervisionEvent,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

impl State {
    fn subscribe(&mut self, me: &ActorRef<Mail<Msg>>) -> Result<(), actor_kit::Full> {
        let (bus, subject) = (Arc::clone(&self.args.bus), wire::subject::load(&self.args.namespace));
        let work = async move { bus.subscribe(&subject, QUEUE_MAX).await };
        let done =
            |outcome: Result<_, Failed>| Msg::Subscribed(outcome.unwrap_or(Err(bus::Error::Disconnected)));
        self.children.run(me, Duration::from_secs(10), work, done).map(drop)
    }

    fn subscribe_later(&mut self, me: &ActorRef<Mail<Msg>>, why: &str) -> Result<(), actor_kit::Full> {
        tracing::debug!(why, "load of other frontends is not heard, trying again");
        self.children.after(me, SUBSCRIBE_RETRY, Msg::Subscribe).map(drop)
    }

    /// Waits for the next messages beside the handler, and takes what else is there.
    fn listen(
        &mut self,
        me: &ActorRef<Mail<Msg>>,
        mut subscription: Box<dyn Subscription>,
    ) -> Result<(), actor_kit::Full> {
        let work = async move {
            let mut received = vec![subscription.next().await?];
            while received.len() < BATCH_MAX
                && let Some(Some(next)) = subscription.next().now_or_never()
            {
                received.push(next);
            }
            Some((subscription, received))
        };
        let ended = |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((subscription, received))) => Msg::Received(subscription, received),
            Ok(None) | Err(_) => Msg::Ended,
        };
        self.children.pump(me, work, ended).map(drop)
    }

    fn hear(&mut self, received: Vec<Received>, now: Duration) {
        let mut heard = false;
        for received in received {
            let Received::Message(message) = received else { continue };
            match wire::load::Gauges::decode(&message.payload) {
                Ok(gauges) if gauges.frontend != self.args.frontend => {
                    self.board.hear(report(gauges), now);
                    heard = true;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "load report cannot be read"),
            }
        }
        if heard {
            self.show();
        }
    }

    fn show(&self) {
        let peers = Peers { board: self.board.clone(), totals: self.board.totals() };
        self.published.store(Arc::new(peers));
    }

    fn tick(&mut self, me: &ActorRef<Mail<Msg>>, now: Duration) -> Result<(), actor_kit::Full> {
        let link = *self.args.bus.link().borrow();
        if link == Link::Up && self.link == Link::Down {
            self.board.resume(now);
            self.whole_at = Duration::ZERO;
        }
        self.link = link;
        if link == Link::Down {
            return Ok(());
        }
        let peers = self.board.peers();
        self.board.expire(now);
        if self.board.peers() != peers {
            self.show();
        }
        if self.publishing {
            return Ok(());
        }
        self.say(me, now)
    }

    /// Publishes what has changed since it was last said, or everything when it is time.
    fn say(&mut self, me: &ActorRef<Mail<Msg>>, now: Duration) -> Result<(), actor_kit::Full> {
        let whole = self.whole_at == Duration::ZERO || now.saturating_sub(self.whole_at) >= WHOLE_PERIOD;
        let mut balances = self.args.ledger.balances();
        if whole {
            self.whole_at = now.max(Duration::from_nanos(1));
            self.said.clear();
        } else {
            balances.retain(|balance| self.said.get(&balance.holder) != Some(&balance.version));
        }
        if balances.is_empty() && !whole {
            return Ok(());
        }
        self.said.extend(balances.iter().map(|balance| (balance.holder.clone(), balance.version)));
        let messages = self.messages(&balances, whole);
        let bus = Arc::clone(&self.args.bus);
        let work = async move {
            for message in messages {
                bus.publish(message).await?;
            }
            Ok::<(), bus::Error>(())
        };
        let done =
            |outcome: Result<Result<(), bus::Error>, Failed>| Msg::Published(matches!(outcome, Ok(Ok(()))));
        self.publishing = true;
        self.children.run(me, PUBLISH_DEADLINE, work, done).map(drop)
    }

    fn messages(&self, balances: &[Balance], whole: bool) -> Vec<Message> {
        let whole = whole && balances.len() <= ENTRIES_MAX;
        let chunks = balances.chunks(ENTRIES_MAX).chain(balances.is_empty().then_some(&[][..]));
        let encoded = chunks.filter_map(|chunk| self.encode(chunk, whole));
        let subject = wire::subject::load(&self.args.namespace);
        encoded.map(|payload| Message { subject: subject.clone(), payload, ..Message::default() }).collect()
    }

    fn encode(&self, balances: &[Balance], whole: bool) -> Option<Bytes> {
        let entry = |balance: &Balance| wire::load::Gauge {
            model: balance.model.clone(),
            holder: balance.holder.clone(),
            version: balance.version,
            active_requests: balance.gauges.active_requests,
            prefill_tokens: balance.gauges.prefill_tokens,
            media_tokens: balance.gauges.media_tokens,
            decode_blocks: balance.gauges.decode_blocks,
        };
        let gauges = wire::load::Gauges {
            frontend: self.args.frontend.clone(),
            incarnation: self.args.incarnation,
            whole,
            entries: balances.iter().map(entry).collect(),
        };
        let encoded = gauges.encode();
        encoded.inspect_err(|error| tracing::warn!(%error, "load report cannot be written")).ok()
    }

    /// What was not sent is said again, whole.
    fn published(&mut self, sent: bool) {
        self.publishing = false;
        if !sent {
            self.whole_at = Duration::ZERO;
        }
    }
}

fn report(gauges: wire::load::Gauges) -> Report {
    let reading = |entry: wire::load::Gauge| Reading {
        holder: entry.holder,
        version: entry.version,
        gauges: Gauges {
            active_requests: entry.active_requests,
            prefill_tokens: entry.prefill_tokens,
            media_tokens: entry.media_tokens,
            decode_blocks: entry.decode_blocks,
        },
    };
    Report {
        frontend: gauges.frontend,
        incarnation: gauges.incarnation,
        whole: gauges.whole,
        entries: gauges.entries.into_iter().map(reading).collect(),
    }
}
