//! Parent: the node · Asks: nobody (the bus through children)
//! Bound: 1,024 waiting messages, 6 children, 1,024 peers of 65,536 entries, 4,096 unsaid and 256 unheard notices
//! When it dies: the last board stays published; the next life resumes from it and says its whole vector at once.

mod outbox;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Me, Node, Spec};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt as _;
use identity::{Holder, Incarnation};
use outbox::Outbox;
use placement::{Board, BoardLimits, Gauges, Reading, Report};
use ports::bus::{self, Link, Message, Received, Subscription};
use ports::{Bus, Clock};
use tokio::sync::broadcast;
use wire::notice::{Notice, Notices};

use crate::scheduler::{Balance, Ledger};

/// The board on which frontends show each other their load; cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct LoadBoardHandle {
    published: Arc<Published>,
    address: Address<Msg>,
}

#[derive(Debug)]
struct Published {
    peers: ArcSwap<Peers>,
    heard: broadcast::Sender<Arc<Notices>>,
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
        let published = Arc::new(Published {
            peers: ArcSwap::from_pointee(Peers::default()),
            heard: broadcast::Sender::new(HEARD_MAX),
        });
        let spec = Spec::new(format!("load-board/{}", args.frontend), MAILBOX_MAX);
        let address = node.supervise::<State>(spec, (args, Arc::clone(&published))).await?;
        Ok(Self { published, address })
    }

    /// Tells the other frontends what dispatches will bring; what does not fit is not told, and costs only time.
    pub fn announce(&self, notices: Vec<Notice>) {
        drop(self.address.offer(Msg::Announce(notices)));
    }

    /// Hears what other frontends' dispatches will bring; a slow listener misses some.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<Arc<Notices>> {
        self.published.heard.subscribe()
    }

    /// Returns what the other frontends have outstanding; no mailbox hop.
    #[must_use]
    pub fn peers(&self) -> Arc<Peers> {
        self.published.peers.load_full()
    }
}

const MAILBOX_MAX: usize = 1024;
const CHILDREN_MAX: usize = 6;
/// Batches of notices that a slow listener may leave unheard.
const HEARD_MAX: usize = 256;
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
    Subscribe(Topic),
    Subscribed(Topic, Result<Box<dyn Subscription>, bus::Error>),
    Received(Topic, Box<dyn Subscription>, Vec<Received>),
    Ended(Topic),
    Published(bool),
    Announce(Vec<Notice>),
    Announced,
    Tick,
}

/// What travels on one subject.
#[derive(Clone, Copy, Debug)]
enum Topic {
    Load,
    Notice,
}

struct State {
    args: LoadBoardArgs,
    published: Arc<Published>,
    outbox: Outbox,
    board: Board,
    said: HashMap<Holder, u64>,
    whole_at: Duration,
    publishing: bool,
    link: Link,
    children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (LoadBoardArgs, Arc<Published>);

    fn begin(me: Me<Msg>, (args, published): Self::Args) -> Result<Self, Fault> {
        let mut children = Children::new(me, CHILDREN_MAX);
        children.tick(CHANGE_PERIOD, || Msg::Tick)?;
        children.after(Duration::ZERO, Msg::Subscribe(Topic::Load))?;
        children.after(Duration::ZERO, Msg::Subscribe(Topic::Notice))?;
        let mut board = published.peers.load().board.clone();
        board.resume(args.clock.now());
        let link = *args.bus.link().borrow();
        Ok(Self {
            outbox: Outbox::new(&args),
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

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let now = self.args.clock.now();
        match message {
            Msg::Subscribe(topic) => self.subscribe(topic)?,
            Msg::Subscribed(topic, Ok(subscription)) => self.listen(topic, subscription)?,
            Msg::Subscribed(topic, Err(error)) => self.subscribe_later(topic, &error.to_string())?,
            Msg::Ended(topic) => self.subscribe_later(topic, "subscription ended")?,
            Msg::Received(topic, subscription, received) => {
                self.hear(topic, received, now);
                self.listen(topic, subscription)?;
            }
            Msg::Announce(notices) => self.outbox.put(notices, &mut self.children)?,
            Msg::Announced => self.outbox.sent(&mut self.children)?,
            Msg::Published(sent) => self.published(sent),
            Msg::Tick => self.tick(now)?,
        }
        Ok(())
    }
}

impl State {
    fn subscribe(&mut self, topic: Topic) -> Result<(), actor_kit::Full> {
        let namespace = &self.args.namespace;
        let subject = match topic {
            Topic::Load => wire::subject::load(namespace),
            Topic::Notice => wire::subject::notice(namespace),
        };
        let bus = Arc::clone(&self.args.bus);
        let work = async move { bus.subscribe(&subject, QUEUE_MAX).await };
        let done = move |outcome: Result<_, Failed>| {
            Msg::Subscribed(topic, outcome.unwrap_or(Err(bus::Error::Disconnected)))
        };
        self.children.run(Duration::from_secs(10), work, done).map(drop)
    }

    fn subscribe_later(&mut self, topic: Topic, why: &str) -> Result<(), actor_kit::Full> {
        tracing::debug!(why, ?topic, "other frontends are not heard, trying again");
        self.children.after(SUBSCRIBE_RETRY, Msg::Subscribe(topic)).map(drop)
    }

    /// Waits for the next messages beside the handler, and takes what else is there.
    fn listen(
        &mut self,
        topic: Topic,
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
        let ended = move |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((subscription, received))) => Msg::Received(topic, subscription, received),
            Ok(None) | Err(_) => Msg::Ended(topic),
        };
        self.children.pump(work, ended).map(drop)
    }

    fn hear(&mut self, topic: Topic, received: Vec<Received>, now: Duration) {
        let mut heard = false;
        for received in received {
            let Received::Message(message) = received else { continue };
            let outcome = match topic {
                Topic::Load => self.hear_load(&message.payload, now).map(|load| heard |= load),
                Topic::Notice => self.hear_notices(&message.payload),
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, ?topic, "message of another frontend cannot be read");
            }
        }
        if heard {
            self.show();
        }
    }

    fn hear_load(&mut self, payload: &[u8], now: Duration) -> Result<bool, wire::Error> {
        let gauges = wire::load::Gauges::decode(payload)?;
        let foreign = gauges.frontend != self.args.frontend;
        if foreign {
            self.board.hear(report(gauges), now);
        }
        Ok(foreign)
    }

    fn hear_notices(&self, payload: &[u8]) -> Result<(), wire::Error> {
        let notices = Notices::decode(payload)?;
        if notices.frontend != self.args.frontend {
            // Without a scheduler that listens, nobody needs to know.
            drop(self.published.heard.send(Arc::new(notices)));
        }
        Ok(())
    }

    fn show(&self) {
        let peers = Peers { board: self.board.clone(), totals: self.board.totals() };
        self.published.peers.store(Arc::new(peers));
    }

    fn tick(&mut self, now: Duration) -> Result<(), actor_kit::Full> {
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
        self.say(now)
    }

    /// Publishes what has changed since it was last said, or everything when it is time.
    fn say(&mut self, now: Duration) -> Result<(), actor_kit::Full> {
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
        self.children.run(PUBLISH_DEADLINE, work, done).map(drop)
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
