//! An engine in memory with its feed, an agent that follows it, and a replica that hears the agent.
#![expect(clippy::unwrap_used, reason = "a test's own rig")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actor_kit::Node;
use actors::{EngineFeedArgs, EngineFeedHandle, FeedStatus, Feeds};
use bytes::Bytes;
use engine_events::Config;
use http::StatusCode;
use identity::{
    BlockKey, Holder, Incarnation, KeyScope, KeySetDigest, ModelName, Rank, WorkerId, block_keys,
};
use membership::{Beat, Change, Delta};
use parking_lot::Mutex;
use ports::bus::{Message, Received, Subscription};
use ports::engine::Endpoint;
use ports::engine::memory::{MemoryEngine, Reply, Then};
use ports::event_feed::memory::{self, Publisher};
use ports::{Bus, EventFeed, InMemoryBus, InMemoryStateStore, TokioClock};
use tokio::time::timeout;
use wire::kv::Update;
use wire::sync::{Request, Response};

pub(crate) const SIZE: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Reconnecting(Publisher);

impl Feeds for Reconnecting {
    fn open(&self) -> Box<dyn EventFeed> {
        Box::new(self.0.reconnect())
    }
}

/// The world around one feed.
pub(crate) struct Rig {
    pub(crate) publisher: Publisher,
    pub(crate) bus: InMemoryBus,
    pub(crate) store: Arc<InMemoryStateStore>,
    /// When the engine says it started; none while it does not answer.
    pub(crate) started_s: Arc<Mutex<Option<u64>>>,
    /// What another process says, that takes the place of this one as soon as it has answered once.
    pub(crate) restarts_at: Arc<Mutex<Option<u64>>>,
    /// Whether the engine keeps that to itself.
    pub(crate) hides_start: Arc<AtomicBool>,
    pub(crate) engine: MemoryEngine,
    pub(crate) clock: Arc<TokioClock>,
}

impl Rig {
    /// An engine that started at second 1,000 and buffers `buffer_max` batches.
    pub(crate) fn new(buffer_max: usize) -> Self {
        let engine = MemoryEngine::default();
        let started_s = Arc::new(Mutex::new(Some(1000)));
        let hides_start = Arc::new(AtomicBool::new(false));
        let (started, hides) = (Arc::clone(&started_s), Arc::clone(&hides_start));
        let restarts_at = Arc::new(Mutex::new(None));
        let restarts = Arc::clone(&restarts_at);
        engine.serve(&endpoint(), move |request| {
            let Some(started_s) = *started.lock() else {
                return Reply::json(StatusCode::OK, "").then(Then::Refuse);
            };
            let name = if hides.load(Ordering::Relaxed) { "hidden" } else { "process_start_time_seconds" };
            let metrics = format!(
                "{name} {started_s}\nvllm:num_requests_running{{engine=\"0\"}} 3\n\
                 vllm:cache_config_info{{block_size=\"4\",num_gpu_blocks=\"100\"}} 1\n"
            );
            if request.path.path() != "/metrics" {
                return Reply::json(StatusCode::OK, "");
            }
            let next = restarts.lock().take();
            next.into_iter().for_each(|next| *started.lock() = Some(next));
            Reply::json(StatusCode::OK, &metrics)
        });
        Self {
            publisher: memory::feed(buffer_max).0,
            bus: InMemoryBus::new(),
            store: Arc::default(),
            started_s,
            restarts_at,
            hides_start,
            engine,
            clock: Arc::new(TokioClock::from_wall(5_000_000)),
        }
    }

    /// Starts an agent in a node of its own; `seed` tells apart what different agents choose.
    pub(crate) async fn agent(&self, seed: u64) -> Agent {
        let node = Node::start(&format!("agent-{:p}-{seed}", Arc::as_ptr(&self.store)));
        let args = EngineFeedArgs {
            namespace: "test".to_owned(),
            model: model(),
            holder: holder(),
            endpoint: endpoint(),
            translation: Config { block_size: SIZE, ..Config::default() },
            seed,
            after: Incarnation::default(),
            feeds: Arc::new(Reconnecting(self.publisher.clone())),
            bus: Arc::new(self.bus.attach()),
            engine: Arc::new(self.engine.clone()),
            store: Arc::clone(&self.store) as _,
            clock: Arc::clone(&self.clock) as _,
        };
        let handle = EngineFeedHandle::start(&node, args).await.unwrap();
        Agent { node, handle }
    }

    pub(crate) async fn replica(&self) -> Replica {
        let subject = wire::subject::kv("test", &model(), &holder());
        let updates = self.bus.subscribe(&subject, 100_000).await.unwrap();
        Replica { updates, ..Replica::empty(self.bus.subscribe("unused", 1).await.unwrap()) }
    }

    pub(crate) async fn ask(&self, request: &Request) -> Response {
        let answer = self.request(request).await.unwrap();
        Response::decode(&answer.payload).unwrap()
    }

    pub(crate) async fn is_answered(&self, request: &Request) -> bool {
        self.request(request).await.is_ok()
    }

    async fn request(&self, request: &Request) -> Result<Message, ports::bus::Error> {
        let subject = wire::subject::sync("test", &model(), &holder());
        let message = Message { subject, payload: request.encode().unwrap(), ..Message::default() };
        self.bus.request(message, Duration::from_secs(5)).await
    }

    pub(crate) async fn next_beat(&self) -> Beat {
        let mut replica = self.replica().await;
        loop {
            let Some(Received::Message(message)) = replica.updates.next().await else { continue };
            if let Update::Beat(beat) = wire::kv::decode(&message.payload).unwrap() {
                return beat;
            }
        }
    }

    pub(crate) fn publish(&self, payload: Bytes) {
        self.publisher.publish(payload);
    }
}

pub(crate) struct Agent {
    pub(crate) node: Node,
    pub(crate) handle: EngineFeedHandle,
}

impl Agent {
    pub(crate) async fn wait(&self, condition: impl Fn(&FeedStatus) -> bool) -> Arc<FeedStatus> {
        let mut changed = self.handle.changed();
        let waiting = async {
            loop {
                changed.borrow_and_update();
                let status = self.handle.status();
                if condition(&status) {
                    return status;
                }
                changed.changed().await.unwrap();
            }
        };
        let status = timeout(PATIENCE, waiting).await;
        assert!(status.is_ok(), "condition not met: {:?}", self.handle.status());
        status.unwrap()
    }

    /// Waits until a number of batches was applied in this life of the actor.
    pub(crate) async fn applied(&self, batches: u64) -> Arc<FeedStatus> {
        self.wait(|status| status.caught_up && status.tally.batches == batches).await
    }

    /// Ends the agent as a crash does: nothing is saved.
    pub(crate) async fn crash(self) {
        self.node.stop(Duration::ZERO).await;
    }
}

/// What a replica that misses nothing and asks nothing knows.
pub(crate) struct Replica {
    updates: Box<dyn Subscription>,
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    pub(crate) keys: BTreeMap<BlockKey, Option<BlockKey>>,
    /// Starts of the lives that deltas came of, in milliseconds.
    pub(crate) lives: BTreeSet<u64>,
}

impl Replica {
    fn empty(updates: Box<dyn Subscription>) -> Self {
        let lives = BTreeSet::new();
        Self { updates, incarnation: Incarnation::default(), seq: 0, keys: BTreeMap::new(), lives }
    }

    /// Hears updates until a beat agrees with what it has, and returns the beat.
    pub(crate) async fn agrees(&mut self, condition: impl Fn(&Beat) -> bool) -> Beat {
        let hearing = async {
            loop {
                let Some(Received::Message(message)) = self.updates.next().await else { continue };
                match wire::kv::decode(&message.payload).unwrap() {
                    Update::Delta(delta) => self.apply(&delta),
                    Update::Beat(beat) => {
                        self.adopt(beat.incarnation);
                        if condition(&beat) && self.matches(&beat) {
                            return beat;
                        }
                    }
                }
            }
        };
        let beat = timeout(PATIENCE, hearing).await;
        let (incarnation, seq, blocks) = (self.incarnation, self.seq, self.keys.len());
        assert!(beat.is_ok(), "no beat agrees with {incarnation} at {seq} of {blocks} keys");
        beat.unwrap()
    }

    pub(crate) fn matches(&self, beat: &Beat) -> bool {
        let mut digest = KeySetDigest::default();
        self.keys.keys().for_each(|key| digest.add(*key));
        (beat.incarnation, beat.seq, beat.blocks, beat.digest)
            == (self.incarnation, self.seq, self.keys.len() as u64, digest.fold())
    }

    fn apply(&mut self, delta: &Delta) {
        self.adopt(delta.incarnation);
        if delta.incarnation < self.incarnation || delta.seq <= self.seq {
            return;
        }
        assert_eq!(delta.seq, self.seq + 1, "no delta is missed");
        self.seq = delta.seq;
        self.lives.insert(delta.incarnation.started_ms);
        for change in &delta.changes {
            match change {
                Change::Stored { parent, keys, .. } => {
                    let mut parent = *parent;
                    for key in keys {
                        assert!(parent.is_none_or(|parent| self.keys.contains_key(&parent)));
                        self.keys.insert(*key, parent);
                        parent = Some(*key);
                    }
                }
                Change::Removed { keys } => {
                    keys.iter().for_each(|key| assert!(self.keys.remove(key).is_some()));
                }
                Change::Cleared => self.keys.clear(),
            }
        }
    }

    fn adopt(&mut self, incarnation: Incarnation) {
        if incarnation > self.incarnation {
            (self.incarnation, self.seq) = (incarnation, 0);
            self.keys.clear();
        }
    }

    pub(crate) fn set(&self) -> BTreeSet<BlockKey> {
        self.keys.keys().copied().collect()
    }
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::parse("http://engine:1").unwrap()
}

pub(crate) fn model() -> ModelName {
    ModelName::new("m/1")
}

pub(crate) fn holder() -> Holder {
    Holder { worker: WorkerId::new("w0"), rank: Rank(0) }
}

/// The keys of a prompt whose blocks are filled with these numbers.
pub(crate) fn keys(blocks: &[u32]) -> Vec<BlockKey> {
    block_keys(KeyScope::default().root(), &tokens(blocks), &[], SIZE)
}

fn tokens(blocks: &[u32]) -> Vec<u32> {
    blocks.iter().flat_map(|block| [*block; SIZE as usize]).collect()
}

/// A batch that stores blocks, each named by its number, behind a block or at the beginning of a prompt.
pub(crate) fn stored(parent: Option<u32>, blocks: &[u32]) -> Bytes {
    let extra = vec![None::<()>; blocks.len()];
    let event =
        ("BlockStored", blocks, parent, tokens(blocks), SIZE, None::<u32>, "GPU", None::<&str>, extra);
    Bytes::from(rmp_serde::to_vec(&(0.5, (event,), 0)).unwrap())
}

pub(crate) fn removed(blocks: &[u32]) -> Bytes {
    Bytes::from(rmp_serde::to_vec(&(0.5, (("BlockRemoved", blocks, "GPU"),), 0)).unwrap())
}
