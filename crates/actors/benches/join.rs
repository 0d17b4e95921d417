//! How long a replica takes to join over a NATS server, beside the raw transfer of the same bytes and the index's own work.
//!
//! `SIGHTLINE_NATS=nats://127.0.0.1:4222 cargo bench -p actors --bench join`: 200 agents behind one connection answer with
//! encoded copies of 10,000 blocks each; a replica behind another connection joins.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measurement of real time on a server named by the environment"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actor_kit::Node;
use actors::replicator::CardSource;
use actors::{IndexerArgs, IndexerHandle, ReplicatorArgs, ReplicatorHandle};
use adapter_nats::NatsBus;
use block_index::Limits;
use bytes::Bytes;
use identity::{BlockKey, Holder, Incarnation, KeySetDigest, ModelName, Rank, WorkerId};
use membership::Run;
use membership::replica::Policy;
use ports::bus::{Message, Received};
use ports::{Bus, TokioClock};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::sync::{Request, Response, Snapshot};

const HOLDERS: u64 = 200;
const BLOCKS: u64 = 10_000;
/// Blocks at the beginning that all holders have in common.
const COMMON: u64 = 2_000;
/// Blocks of a prompt behind these.
const PROMPT: usize = 250;
const LIFE: Incarnation = Incarnation { started_ms: 1, nonce: 1 };
const ROUNDS: u64 = 5;

#[derive(Debug)]
struct Cards(BTreeMap<Holder, Incarnation>, watch::Sender<u64>);

impl CardSource for Cards {
    fn carded(&self, _model: &ModelName) -> Option<BTreeMap<Holder, Incarnation>> {
        Some(self.0.clone())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.1.subscribe()
    }
}

/// A holder's set as its agent gives it.
struct Set {
    holder: Holder,
    runs: Vec<Run>,
    digest: KeySetDigest,
    chunks: Vec<Bytes>,
}

fn key(number: u64) -> BlockKey {
    let word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    BlockKey::new(word ^ (word >> 29))
}

fn set(number: u64) -> Set {
    let common: Vec<BlockKey> = (0..COMMON).map(key).collect();
    let own: Vec<BlockKey> = (0..BLOCKS - COMMON).map(|at| key((number + 1) << 32 | at)).collect();
    let last = common.last().copied();
    let mut runs = vec![Run { parent: None, keys: common }];
    runs.extend(own.chunks(PROMPT).map(|keys| Run { parent: last, keys: keys.to_vec() }));
    let mut digest = KeySetDigest::default();
    runs.iter().flat_map(|run| &run.keys).for_each(|key| digest.add(*key));
    let chunks = Response::chunks(runs.clone()).unwrap();
    let holder = Holder { worker: WorkerId::new(&format!("w{number:03}")), rank: Rank(0) };
    Set { holder, runs, digest, chunks }
}

async fn connect(name: &str) -> NatsBus {
    let url = std::env::var("SIGHTLINE_NATS").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let config =
        adapter_nats::Config { servers: vec![url], name: name.to_owned(), ..adapter_nats::Config::default() };
    NatsBus::connect(&config).await.unwrap()
}

/// Answers one holder's questions.
async fn agent(bus: Arc<NatsBus>, set: Arc<Set>, model: ModelName) {
    let subject = wire::subject::sync("join", &model, &set.holder);
    let mut questions = bus.subscribe(&subject, 1024).await.unwrap();
    while let Some(received) = questions.next().await {
        let Received::Message(Message { reply: Some(reply), payload, .. }) = received else { continue };
        let payload = match Request::decode(&payload).unwrap() {
            Request::Chunk { index, .. } => set.chunks[usize::try_from(index).unwrap()].clone(),
            Request::Digest => {
                Response::Digest { incarnation: LIFE, seq: 1, digest: set.digest.clone() }.encode().unwrap()
            }
            Request::Open { .. }
            | Request::Range { .. }
            | Request::Buckets { .. }
            | Request::Succeed { .. } => {
                let chunks = u32::try_from(set.chunks.len()).unwrap();
                let snapshot = Snapshot { id: 1, seq: 1, digest: set.digest.clone(), blocks: BLOCKS, chunks };
                Response::Opened(snapshot).encode().unwrap()
            }
        };
        bus.publish(Message { subject: reply, payload, ..Message::default() }).await.unwrap();
    }
}

/// Sends all copies one after the other to a reader that does nothing with them.
async fn raw(from: &NatsBus, to: &NatsBus, sets: &[Arc<Set>]) -> (Duration, usize) {
    let mut reader = to.subscribe("join.raw", 16_384).await.unwrap();
    let payloads: Vec<Bytes> = sets.iter().flat_map(|set| set.chunks.clone()).collect();
    let (count, bytes) = (payloads.len(), payloads.iter().map(Bytes::len).sum());
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    let sending = async {
        for payload in payloads {
            from.publish(Message { subject: "join.raw".to_owned(), payload, ..Message::default() })
                .await
                .unwrap();
        }
    };
    let reading = async {
        let mut heard = 0;
        while heard < count {
            // A link that has just come up is a gap.
            heard += usize::from(matches!(reader.next().await.unwrap(), Received::Message(_)));
        }
    };
    tokio::join!(sending, reading);
    (began.elapsed(), bytes)
}

/// Puts all sets into an index.
fn apply(sets: &[Arc<Set>]) -> Duration {
    let (mut index, _reader) = block_index::new(Limits::default());
    let began = Instant::now();
    for set in sets {
        let id = index.add_holder().unwrap();
        let runs: Vec<_> =
            set.runs.iter().map(|run| block_index::Run { parent: run.parent, keys: &run.keys }).collect();
        index.replace(id, &runs).unwrap();
    }
    began.elapsed()
}

/// Joins; the time until the replica is ready with every digest verified.
async fn join(bus: Arc<NatsBus>, round: u64, model: &ModelName, sets: &[Arc<Set>]) -> Duration {
    let node = Node::start(&format!("join-{round}"));
    let clock = Arc::new(TokioClock::system());
    let carded = sets.iter().map(|set| (set.holder.clone(), LIFE)).collect();
    let args = IndexerArgs { model: model.clone(), limits: Limits::default(), clock: clock.clone() };
    let indexer = IndexerHandle::start(&node, args).await.unwrap();
    let args = ReplicatorArgs {
        namespace: "join".to_owned(),
        model: model.clone(),
        bus,
        clock,
        indexer: indexer.clone(),
        cards: Arc::new(Cards(carded, watch::Sender::new(1))),
        listeners: Vec::new(),
        policy: Policy::default(),
        blocks_max: 64 << 20,
        seed: round,
    };
    let began = Instant::now();
    let _replicator = ReplicatorHandle::start(&node, args).await.unwrap();
    let verified = indexer.wait_for(|view| {
        view.holders().filter(|(_, known)| known.agrees == Some(true)).count() == sets.len()
            && indexer.is_ready()
    });
    let view = tokio::time::timeout(Duration::from_secs(60), verified).await.unwrap();
    let took = began.elapsed();
    let memberships: u64 = view.holders().map(|(_, known)| known.blocks).sum();
    assert_eq!(memberships, HOLDERS * BLOCKS);
    for set in sets {
        assert_eq!(view.holder(&set.holder).unwrap().digest, set.digest.fold());
    }
    node.stop(Duration::from_secs(1)).await;
    took
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let model = ModelName::new("m");
        let sets: Vec<Arc<Set>> = (0..HOLDERS).map(|number| Arc::new(set(number))).collect();
        let (agents, replica) = (Arc::new(connect("agents").await), Arc::new(connect("replica").await));
        let mut answering = JoinSet::new();
        for set in &sets {
            answering.spawn(agent(Arc::clone(&agents), Arc::clone(set), model.clone()));
        }
        for round in 0..ROUNDS {
            let (transfer, bytes) = raw(&agents, &replica, &sets).await;
            let own = apply(&sets);
            let took = join(Arc::clone(&replica), round, &model, &sets).await;
            let ratio = took.as_secs_f64() / (transfer + own).as_secs_f64();
            let memberships = HOLDERS * BLOCKS;
            println!(
                "round {round}: {HOLDERS} holders, {memberships} memberships, {bytes} bytes: transfer {transfer:?}, apply {own:?}, join {took:?}, {ratio:.2} times both"
            );
        }
    });
}
