//! Parent: the node · Asks: nobody (the bus and the caches through its two children)
//! Bound: 2 children; 4,096 news wait to be sent, 256 at a time; 1,024 messages wait to be taken in
//! When it dies: both children end and begin anew; what was not told meanwhile is asked of its origin by who needs it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actor_kit::{Actor, Children, Failed, Fault, Me, Node, Spec};
use ports::bus::{Message, Received};
use ports::{Bus, Clock};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};
use wire::fact::Facts;

use crate::dim_cache::DimCache;
use crate::gossip::{Gossip, News};
use crate::header_cache::HeaderCache;

/// Tells other frontends what this one learned of media, and takes in what they tell; outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct FactBoardHandle {
    tally: Arc<Counts>,
}

/// What a fact board needs.
#[derive(Clone, Debug)]
pub struct FactBoardArgs {
    /// The namespace whose frontends share their facts.
    pub namespace: String,
    /// This frontend's name, unique in the namespace.
    pub frontend: String,
    /// Where facts travel.
    pub bus: Arc<dyn Bus>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// What this frontend's caches tell.
    pub gossip: Gossip,
    /// Takes in what is known of bytes.
    pub cache: DimCache,
    /// Takes in what is known of headers.
    pub headers: HeaderCache,
}

/// What a fact board has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Facts and names told.
    pub told: u64,
    /// Facts and names of other frontends taken in.
    pub heard: u64,
    /// Facts and names that could not be told.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Counts {
    told: AtomicU64,
    heard: AtomicU64,
    lost: AtomicU64,
}

impl FactBoardHandle {
    /// Starts the board in a node, as `fact-board/<frontend>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: FactBoardArgs) -> Result<Self, actor_kit::node::Error> {
        let tally = Arc::<Counts>::default();
        let spec = Spec::new(format!("fact-board/{}", args.frontend), MAILBOX_MAX);
        node.supervise::<State>(spec, (args, Arc::clone(&tally))).await?;
        Ok(Self { tally })
    }

    /// Returns what was counted; no mailbox hop.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let Counts { told, heard, lost } = &*self.tally;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally { told: read(told), heard: read(heard), lost: read(lost) }
    }
}

const MAILBOX_MAX: usize = 16;
const CHILDREN_MAX: usize = 2;
/// News are told within this and the time of sending.
const GATHER: Duration = Duration::from_millis(40);
/// News per message: at most 2 KiB each keep it within the bus's limit.
const BATCH_MAX: usize = 256;
const PUBLISH_DEADLINE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(500);
const QUEUE_MAX: usize = 1024;
/// Longest time that anything told is used without asking.
const FRESH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug)]
enum Msg {
    Ended(&'static str),
}

struct State {
    _children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (FactBoardArgs, Arc<Counts>);

    fn begin(me: Me<Msg>, (args, counts): Self::Args) -> Result<Self, Fault> {
        let mut children = Children::new(me, CHILDREN_MAX);
        let news = args.gossip.listen();
        let speaking = speak(args.clone(), news, Arc::clone(&counts));
        children.pump(speaking, |_: Result<(), Failed>| Msg::Ended("telling"))?;
        children.pump(listen(args, counts), |_: Result<(), Failed>| Msg::Ended("listening"))?;
        Ok(Self { _children: children })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Ended(what) => Err(format!("{what} of media facts ended").into()),
        }
    }
}

/// Tells news, those of a moment together.
async fn speak(args: FactBoardArgs, mut news: Receiver<Arc<News>>, counts: Arc<Counts>) {
    let subject = wire::subject::fact(&args.namespace);
    while let Some(first) = next(&mut news, &counts).await {
        args.clock.sleep(GATHER).await;
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Some(more) = more(&mut news, &counts)
        {
            batch.push(more);
        }
        let told = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let count = match message(&args, &batch).encode() {
            Ok(payload) => {
                let message = Message { subject: subject.clone(), payload, ..Message::default() };
                let sent = tokio::time::timeout(PUBLISH_DEADLINE, args.bus.publish(message)).await;
                if matches!(sent, Ok(Ok(()))) { &counts.told } else { &counts.lost }
            }
            Err(error) => {
                tracing::warn!(%error, "media facts cannot be written");
                &counts.lost
            }
        };
        count.fetch_add(told, Ordering::Relaxed);
    }
}

async fn next(news: &mut Receiver<Arc<News>>, counts: &Counts) -> Option<Arc<News>> {
    loop {
        match news.recv().await {
            Ok(news) => return Some(news),
            Err(RecvError::Lagged(missed)) => drop(counts.lost.fetch_add(missed, Ordering::Relaxed)),
            Err(RecvError::Closed) => return None,
        }
    }
}

fn more(news: &mut Receiver<Arc<News>>, counts: &Counts) -> Option<Arc<News>> {
    loop {
        match news.try_recv() {
            Ok(news) => return Some(news),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => {
                counts.lost.fetch_add(missed, Ordering::Relaxed);
            }
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                return None;
            }
        }
    }
}

/// Spells news; of several of one URL or name the last counts.
fn message(args: &FactBoardArgs, batch: &[Arc<News>]) -> Facts {
    let now = args.clock.now();
    let mut facts = HashMap::new();
    let mut names = HashMap::new();
    for news in batch {
        match &**news {
            News::Fact { fact, fresh_until } => {
                let mut fact = fact.clone();
                let left = fresh_until.saturating_sub(now).as_millis();
                fact.fresh_ms = u64::try_from(left).unwrap_or(u64::MAX);
                facts.insert(fact.url, fact);
            }
            News::Name(name) => drop(names.insert(name.name, name.clone())),
        }
    }
    Facts {
        frontend: args.frontend.clone(),
        sent_ms: args.clock.wall_ms(),
        facts: facts.into_values().collect(),
        names: names.into_values().collect(),
    }
}

/// Takes in what others tell, for as long as the bus lasts.
async fn listen(args: FactBoardArgs, counts: Arc<Counts>) {
    let subject = wire::subject::fact(&args.namespace);
    let mut subscription = loop {
        match args.bus.subscribe(&subject, QUEUE_MAX).await {
            Ok(subscription) => break subscription,
            Err(error) => {
                tracing::debug!(%error, "other frontends' media facts are not heard, trying again");
                args.clock.sleep(RETRY).await;
            }
        }
    };
    while let Some(received) = subscription.next().await {
        let Received::Message(message) = received else { continue };
        match Facts::decode(&message.payload) {
            Ok(facts) if facts.frontend != args.frontend => take_in(&args, &facts, &counts).await,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "media facts of another frontend cannot be read"),
        }
    }
}

async fn take_in(args: &FactBoardArgs, facts: &Facts, counts: &Counts) {
    // Time on the way counts; a sender whose clock is ahead gets no bonus for it.
    let on_the_way = Duration::from_millis(args.clock.wall_ms().saturating_sub(facts.sent_ms));
    for fact in &facts.facts {
        let fresh_for = Duration::from_millis(fact.fresh_ms).min(FRESH_MAX).saturating_sub(on_the_way);
        args.cache.hear_fact(fact, fresh_for).await;
        args.headers.hear_fact(fact, fresh_for).await;
    }
    for name in &facts.names {
        args.cache.hear_name(name).await;
    }
    let heard = facts.facts.len() + facts.names.len();
    counts.heard.fetch_add(u64::try_from(heard).unwrap_or(u64::MAX), Ordering::Relaxed);
}
