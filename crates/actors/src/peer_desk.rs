//! Parent: the node · Asks: the indexer (through children, at most 8 at a time)
//! Bound: 64 waiting messages, 16 copies, each for 10 s; who asks for more goes to the agents
//! When it dies: joining replicas go to the agents; the next life gives again.

mod copies;

use std::sync::Arc;
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Failed, Fault, Full, Me, Node, Spec, address};
use bytes::Bytes;
use identity::ModelName;
use ports::bus::{self, Message, Received, Subscription};
use ports::{Bus, Clock};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use wire::peer::{Offered, Question};
use wire::sync::{Refusal, Response, Snapshot};

use crate::indexer::{IndexerHandle, Withheld};

use copies::Copies;

/// Gives joining replicas the sets that this one has and knows to be right.
#[derive(Clone, Debug)]
pub struct PeerDeskHandle {
    _address: Address<Msg>,
}

/// What a peer desk needs.
#[derive(Clone, Debug)]
pub struct PeerDeskArgs {
    /// The namespace of the subjects.
    pub namespace: String,
    /// The model whose sets are given.
    pub model: ModelName,
    /// Names this replica among the model's.
    pub peer: u64,
    /// Where questions come from.
    pub bus: Arc<dyn Bus>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// Has the sets.
    pub indexer: IndexerHandle,
}

impl PeerDeskHandle {
    /// Starts the desk in a node, as `peer-desk/<model>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: PeerDeskArgs) -> Result<Self, actor_kit::node::Error> {
        let spec = Spec::new(format!("peer-desk/{}", args.model), MAILBOX_MAX);
        Ok(Self { _address: node.supervise::<State>(spec, args).await? })
    }
}

const MAILBOX_MAX: usize = 64;
/// Sets that are copied at a time.
const COPYING_MAX: usize = 8;
/// Beside these: two subscriptions.
const CHILDREN_MAX: usize = COPYING_MAX + 2;
const QUESTIONS_MAX: usize = 1024;
const COPY_DEADLINE: Duration = Duration::from_secs(10);
const PUBLISH_DEADLINE: Duration = Duration::from_secs(1);
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
const SUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);

/// To whom a question goes.
#[derive(Clone, Copy, Debug)]
enum Topic {
    All,
    Own,
}

type Cut = Result<(Snapshot, Vec<Bytes>), Refusal>;

#[derive(Debug)]
enum Msg {
    Subscribe(Topic),
    Subscribed(Topic, Result<Box<dyn Subscription>, bus::Error>),
    Asked(Topic, Box<dyn Subscription>, Received),
    Unsubscribed(Topic),
    Copied(String, Cut),
}

struct State {
    args: PeerDeskArgs,
    copies: Copies,
    copying: usize,
    copies_made: u64,
    children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = PeerDeskArgs;

    fn begin(me: Me<Msg>, args: PeerDeskArgs) -> Result<Self, Fault> {
        let mut children = Children::new(me, CHILDREN_MAX);
        children.after(Duration::ZERO, Msg::Subscribe(Topic::All))?;
        children.after(Duration::ZERO, Msg::Subscribe(Topic::Own))?;
        Ok(Self { args, copies: Copies::default(), copying: 0, copies_made: 0, children })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Subscribe(topic) => self.subscribe(topic)?,
            Msg::Subscribed(topic, Ok(subscription)) => self.listen(topic, subscription)?,
            Msg::Subscribed(topic, Err(_)) | Msg::Unsubscribed(topic) => {
                self.children.after(SUBSCRIBE_PAUSE, Msg::Subscribe(topic))?;
            }
            Msg::Asked(topic, subscription, received) => {
                self.listen(topic, subscription)?;
                self.asked(received).await?;
            }
            Msg::Copied(reply, cut) => self.copied(reply, cut).await,
        }
        Ok(())
    }
}

impl State {
    fn subscribe(&mut self, topic: Topic) -> Result<(), Full> {
        let (namespace, model) = (&self.args.namespace, &self.args.model);
        let subject = match topic {
            Topic::All => wire::subject::peers(namespace, model),
            Topic::Own => wire::subject::peer(namespace, model, self.args.peer),
        };
        let bus = Arc::clone(&self.args.bus);
        let work = async move { bus.subscribe(&subject, QUESTIONS_MAX).await };
        let done = move |outcome: Result<_, Failed>| {
            Msg::Subscribed(topic, outcome.unwrap_or(Err(bus::Error::Disconnected)))
        };
        self.children.run(SUBSCRIBE_DEADLINE, work, done).map(drop)
    }

    fn listen(&mut self, topic: Topic, mut subscription: Box<dyn Subscription>) -> Result<(), Full> {
        let work = async move { subscription.next().await.map(|received| (subscription, received)) };
        let ended = move |outcome: Result<Option<_>, Failed>| match outcome {
            Ok(Some((subscription, received))) => Msg::Asked(topic, subscription, received),
            Ok(None) | Err(_) => Msg::Unsubscribed(topic),
        };
        self.children.pump(work, ended).map(drop)
    }

    async fn asked(&mut self, received: Received) -> Result<(), Full> {
        let Received::Message(Message { reply: Some(reply), payload, .. }) = received else { return Ok(()) };
        match Question::decode(&payload) {
            Ok(Question::Offer { asker }) => {
                if asker != self.args.peer && self.args.indexer.is_ready() && self.has_room() {
                    self.answer(reply, Offered { peer: self.args.peer }.encode().ok()).await;
                }
            }
            Ok(Question::Open { .. }) if !self.has_room() => self.refuse(reply, Refusal::Busy).await,
            Ok(Question::Open { holder, incarnation }) => {
                self.copying += 1;
                self.copies_made += 1;
                let id = self.args.clock.wall_ms() << 16 | (self.copies_made & 0xffff);
                let indexer = self.args.indexer.clone();
                let work = async move {
                    let copied = indexer.copy(holder, incarnation).await;
                    let cut = spawn_blocking(move || cut(id, copied)).await;
                    cut.unwrap_or(Err(Refusal::Busy))
                };
                let done = move |outcome: Result<Cut, Failed>| {
                    Msg::Copied(reply, outcome.unwrap_or(Err(Refusal::Busy)))
                };
                self.children.run(COPY_DEADLINE, work, done)?;
            }
            Ok(Question::Chunk { snapshot, index }) => {
                match self.copies.chunk(snapshot, index, self.args.clock.now()) {
                    Some(chunk) => self.answer(reply, Some(chunk)).await,
                    None => self.refuse(reply, Refusal::NoSnapshot).await,
                }
            }
            Err(error) => tracing::debug!(%error, "question of another replica cannot be read"),
        }
        Ok(())
    }

    fn has_room(&mut self) -> bool {
        self.copying < COPYING_MAX && self.copies.has_room(self.copying, self.args.clock.now())
    }

    async fn copied(&mut self, reply: String, cut: Cut) {
        self.copying = self.copying.saturating_sub(1);
        match cut {
            Ok((snapshot, chunks)) => {
                self.copies.keep(snapshot.id, chunks, self.args.clock.now());
                self.answer(reply, Response::Opened(snapshot).encode().ok()).await;
            }
            Err(refusal) => self.refuse(reply, refusal).await,
        }
    }

    async fn refuse(&self, reply: String, refusal: Refusal) {
        self.answer(reply, Response::Refused(refusal).encode().ok()).await;
    }

    /// Answers, as far as the bus can: who does not hear goes to the agents.
    async fn answer(&self, reply: String, payload: Option<Bytes>) {
        let Some(payload) = payload else { return };
        let message = Message { subject: reply, payload, ..Message::default() };
        if let Ok(Err(error)) = timeout(PUBLISH_DEADLINE, self.args.bus.publish(message)).await {
            tracing::debug!(%error, "joining replica was not answered");
        }
    }
}

/// Cuts a copied set into encoded chunks; takes time in proportion to the set.
fn cut(id: u64, copied: Result<Result<crate::indexer::Copied, Withheld>, address::Error>) -> Cut {
    let copied = match copied {
        Ok(Ok(copied)) => copied,
        Ok(Err(Withheld::OtherLife { present })) => return Err(Refusal::Incarnation { present }),
        Ok(Err(Withheld::NotProven)) => return Err(Refusal::NoSnapshot),
        Err(_) => return Err(Refusal::Busy),
    };
    let chunks = Response::chunks(copied.runs).map_err(|_| Refusal::TooLarge)?;
    let count = u32::try_from(chunks.len()).map_err(|_| Refusal::TooLarge)?;
    let blocks = copied.digest.len();
    Ok((Snapshot { id, seq: copied.seq, digest: copied.digest, blocks, chunks: count }, chunks))
}
