//! An agent as replicas see one: it publishes deltas and beats and answers questions, over a set made up by a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::{BlockKey, Holder, Incarnation, KeySetDigest, ModelName, Rank, WorkerId};
use membership::{Beat, Change, Delta, Ring, Run};
use parking_lot::Mutex;
use ports::Bus;
use ports::bus::{Message, Received};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use wire::sync::{Refusal, Request, Response, Snapshot};

pub(crate) const NAMESPACE: &str = "test";

pub(crate) fn model() -> ModelName {
    ModelName::new("m")
}

pub(crate) fn holder(name: &str) -> Holder {
    Holder { worker: WorkerId::new(name), rank: Rank(0) }
}

/// A running agent; dropping it is its death.
pub(crate) struct Agent {
    bus: Arc<dyn Bus>,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

/// What an agent says of its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    pub(crate) blocks: u64,
    pub(crate) digest: u64,
}

struct State {
    holder: Holder,
    incarnation: Incarnation,
    seq: u64,
    keys: BTreeMap<BlockKey, (u32, Option<BlockKey>)>,
    digest: KeySetDigest,
    ring: Ring,
    copies: BTreeMap<u64, Vec<Bytes>>,
}

impl Agent {
    pub(crate) fn start(bus: Arc<dyn Bus>, name: &str, started_ms: u64) -> Self {
        let state = State {
            holder: holder(name),
            incarnation: Incarnation { started_ms, nonce: 7 },
            seq: 0,
            keys: BTreeMap::new(),
            digest: KeySetDigest::default(),
            ring: Ring::new(256, usize::MAX),
            copies: BTreeMap::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let mut tasks = JoinSet::new();
        tasks.spawn(beats(Arc::clone(&bus), Arc::clone(&state)));
        tasks.spawn(answers(Arc::clone(&bus), Arc::clone(&state)));
        Self { bus, state, _tasks: tasks }
    }

    pub(crate) fn stand(&self) -> Stand {
        let state = self.state.lock();
        Stand {
            incarnation: state.incarnation,
            seq: state.seq,
            blocks: state.keys.len() as u64,
            digest: state.digest.fold(),
        }
    }

    pub(crate) async fn store(&self, parent: Option<BlockKey>, keys: &[BlockKey]) {
        let delta = {
            let mut state = self.state.lock();
            let mut above = parent;
            let mut depth = parent.map_or(0, |parent| state.keys[&parent].0 + 1);
            for key in keys {
                state.keys.insert(*key, (depth, above));
                state.digest.add(*key);
                (above, depth) = (Some(*key), depth + 1);
            }
            state.next(Change::Stored { parent, keys: keys.to_vec(), media: vec![] })
        };
        self.publish(&delta).await;
    }

    pub(crate) async fn remove(&self, key: BlockKey) {
        let delta = {
            let mut state = self.state.lock();
            state.keys.remove(&key);
            state.digest.take(key);
            state.next(Change::Removed { keys: vec![key] })
        };
        self.publish(&delta).await;
    }

    async fn publish(&self, delta: &Delta) {
        let subject = wire::subject::kv(NAMESPACE, &model(), &delta.holder());
        let payload = wire::kv::encode_delta(delta).unwrap();
        drop(self.bus.publish(Message { subject, payload, ..Message::default() }).await);
    }
}

impl State {
    fn next(&mut self, change: Change) -> Delta {
        self.seq += 1;
        let delta = Delta {
            scheme: identity::SCHEME.to_owned(),
            model: model(),
            worker: self.holder.worker.clone(),
            rank: self.holder.rank,
            incarnation: self.incarnation,
            seq: self.seq,
            changes: vec![change],
        };
        self.ring.push(Arc::new(delta.clone()));
        delta
    }

    fn beat(&self) -> Beat {
        Beat {
            scheme: identity::SCHEME.to_owned(),
            model: model(),
            worker: self.holder.worker.clone(),
            rank: self.holder.rank,
            incarnation: self.incarnation,
            seq: self.seq,
            blocks: self.keys.len() as u64,
            digest: self.digest.fold(),
            running: 3,
            waiting: 1,
            kv_usage: 0.5,
            engine_healthy: true,
            coverage: 1.0,
        }
    }

    fn runs(&self, wanted: impl Fn(BlockKey) -> bool) -> Vec<Run> {
        let wanted = self.keys.iter().filter(|(key, _)| wanted(**key));
        let mut ordered: Vec<_> = wanted.map(|(key, (depth, parent))| (*depth, *key, *parent)).collect();
        ordered.sort_unstable();
        ordered.into_iter().map(|(_, key, parent)| Run { parent, keys: vec![key] }).collect()
    }

    fn answer(&mut self, request: &Request) -> Bytes {
        let refused = |refusal| Response::Refused(refusal).encode();
        match request {
            Request::Range { incarnation, .. }
            | Request::Buckets { incarnation, .. }
            | Request::Open { incarnation }
                if *incarnation != self.incarnation =>
            {
                refused(Refusal::Incarnation { present: self.incarnation })
            }
            Request::Succeed { .. } => refused(Refusal::Incarnation { present: self.incarnation }),
            Request::Range { from, .. } => match self.ring.from(*from) {
                Some(deltas) => Response::range(deltas.map(|delta| &**delta)),
                None => refused(Refusal::Forgotten),
            },
            Request::Digest => {
                Response::Digest { incarnation: self.incarnation, seq: self.seq, digest: self.digest.clone() }
                    .encode()
            }
            Request::Buckets { digest, .. } => {
                let buckets: Vec<u8> = self.digest.differing(digest).collect();
                let runs = self.runs(|key| buckets.contains(&KeySetDigest::bucket_of(key)));
                Response::buckets(self.seq, &self.digest, buckets, runs)
            }
            Request::Open { .. } => {
                let chunks = Response::chunks(self.runs(|_| true)).unwrap();
                let snapshot = Snapshot {
                    id: self.seq,
                    seq: self.seq,
                    digest: self.digest.clone(),
                    blocks: self.keys.len() as u64,
                    chunks: u32::try_from(chunks.len()).unwrap(),
                };
                self.copies.insert(self.seq, chunks);
                Response::Opened(snapshot).encode()
            }
            Request::Chunk { snapshot, index } => {
                let chunks = self.copies.get(snapshot);
                match chunks.and_then(|chunks| chunks.get(usize::try_from(*index).unwrap())) {
                    Some(chunk) => Ok(chunk.clone()),
                    None => refused(Refusal::NoSnapshot),
                }
            }
        }
        .unwrap()
    }
}

async fn beats(bus: Arc<dyn Bus>, state: Arc<Mutex<State>>) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let beat = state.lock().beat();
        let subject = wire::subject::kv(NAMESPACE, &model(), &beat.holder());
        let payload = wire::kv::encode_beat(&beat).unwrap();
        drop(bus.publish(Message { subject, payload, ..Message::default() }).await);
    }
}

async fn answers(bus: Arc<dyn Bus>, state: Arc<Mutex<State>>) {
    let subject = wire::subject::sync(NAMESPACE, &model(), &state.lock().holder);
    let mut questions = bus.subscribe(&subject, 100).await.unwrap();
    while let Some(received) = questions.next().await {
        let Received::Message(question) = received else { continue };
        let (Some(reply), Ok(request)) = (question.reply, Request::decode(&question.payload)) else {
            continue;
        };
        let payload = state.lock().answer(&request);
        drop(bus.publish(Message { subject: reply, payload, ..Message::default() }).await);
    }
}
