//! Engines: what they cache, what they publish of it, and what they say of themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use identity::{BlockKey, KeySetDigest};
use parking_lot::Mutex;
use ports::engine::Endpoint;
use ports::engine::memory::{MemoryEngine, Reply, Then};

use crate::dice::Dice;
use crate::feed::{Line, Pace};
use crate::prompts::{BlockId, Prompts, SIZE, tokens};

/// Blocks that an engine caches.
const BLOCKS_MAX: usize = 40;

/// One engine endpoint; processes come and go behind it.
#[derive(Clone, Debug)]
pub(crate) struct SimEngine {
    pub(crate) worker: String,
    pub(crate) line: Line,
    prompts: Arc<Prompts>,
    process: Arc<Mutex<Process>>,
}

#[derive(Debug)]
struct Process {
    up: bool,
    hung: bool,
    started_ms: u64,
    cache: BTreeSet<BlockId>,
    /// All that any process ever cached, by its start.
    ever: BTreeMap<u64, BTreeSet<BlockKey>>,
    dice: Dice,
}

impl SimEngine {
    pub(crate) fn new(worker: &str, prompts: &Arc<Prompts>, seed: u64, replay_max: usize) -> Self {
        let process = Process {
            up: false,
            hung: false,
            started_ms: 0,
            cache: BTreeSet::new(),
            ever: BTreeMap::new(),
            dice: Dice::of(seed, worker),
        };
        Self {
            worker: worker.to_owned(),
            line: Line::new(replay_max, Dice::of(seed, &format!("{worker}/line"))),
            prompts: Arc::clone(prompts),
            process: Arc::new(Mutex::new(process)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}:8000", self.worker)
    }

    /// Lets the endpoint answer as the present process does.
    pub(crate) fn listen(&self, http: &MemoryEngine) {
        let engine = self.clone();
        http.serve(&Endpoint::parse(&self.url()).unwrap(), move |request| engine.answer(request.path.path()));
    }

    fn answer(&self, path: &str) -> Reply {
        let process = self.process.lock();
        if !process.up {
            return Reply::json(StatusCode::OK, "").then(Then::Refuse);
        }
        if process.hung {
            return Reply { chunks: Vec::new(), ..Reply::json(StatusCode::OK, "") }.then(Then::Hang);
        }
        let (s, ms) = (process.started_ms / 1000, process.started_ms % 1000);
        let body = match path {
            "/metrics" => format!(
                "process_start_time_seconds {s}.{ms:03}\nvllm:num_requests_running{{engine=\"0\"}} 0\n\
                 vllm:cache_config_info{{block_size=\"{SIZE}\",num_gpu_blocks=\"1000\"}} 1\n"
            ),
            "/v1/models" => r#"{"data":[{"id":"m","max_model_len":4096}]}"#.to_owned(),
            "/version" => r#"{"version":"0.32.0"}"#.to_owned(),
            "/kv_event_sources" => {
                r#"{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:1"}}"#.to_owned()
            }
            _ => String::new(),
        };
        Reply::json(StatusCode::OK, &body)
    }

    pub(crate) fn is_up(&self) -> bool {
        let process = self.process.lock();
        process.up && !process.hung
    }

    pub(crate) fn started_ms(&self) -> u64 {
        self.process.lock().started_ms
    }

    pub(crate) fn crash(&self) {
        let mut process = self.process.lock();
        process.up = false;
        process.cache.clear();
        self.line.set_pace(Pace::Refuses);
    }

    pub(crate) fn start(&self, now_ms: u64, noticed: bool) {
        let mut process = self.process.lock();
        // Start times are read with an error: engines that restart take longer than that.
        (process.up, process.hung) = (true, false);
        process.started_ms = now_ms.max(process.started_ms + 100);
        process.cache.clear();
        self.line.restart(noticed);
    }

    pub(crate) fn set_hung(&self, hung: bool) {
        let mut process = self.process.lock();
        process.hung = hung;
        if process.up {
            self.line.set_pace(if hung { Pace::Hangs } else { Pace::Answers });
        }
    }

    /// Computes a prompt: caches what is missing of it, and evicts where there is no room.
    pub(crate) fn serve(&self, blocks: &[BlockId]) {
        let mut process = self.process.lock();
        let mut before = None;
        let mut missing: Vec<BlockId> = Vec::new();
        let mut missing_behind = None;
        let mut events = Vec::new();
        for block in blocks {
            if process.cache.contains(block) {
                events.extend(stored(missing_behind, &missing));
                missing.clear();
            } else {
                if missing.is_empty() {
                    missing_behind = before;
                }
                missing.push(*block);
            }
            before = Some(*block);
        }
        events.extend(stored(missing_behind, &missing));
        process.cache.extend(blocks);
        let started_ms = process.started_ms;
        let keys = blocks.iter().map(|block| self.prompts.blocks[block].1);
        process.ever.entry(started_ms).or_default().extend(keys);
        while process.cache.len() > BLOCKS_MAX {
            events.push(self.evict(&mut process, blocks));
        }
        drop(process);
        events.into_iter().for_each(|event| self.line.publish(event));
    }

    /// Evicts a block that ends a prompt, as a rule; a block in the middle now and then.
    fn evict(&self, process: &mut Process, spared: &[BlockId]) -> Bytes {
        let parents: BTreeSet<BlockId> =
            process.cache.iter().filter_map(|block| self.prompts.blocks[block].0).collect();
        let any = process.dice.chance(100);
        let old = process.cache.iter().filter(|block| !spared.contains(block));
        let old: Vec<BlockId> = old.filter(|block| any || !parents.contains(block)).copied().collect();
        let block = old[process.dice.index(old.len())];
        process.cache.remove(&block);
        removed(block)
    }

    /// Evicts one block, whatever there is room for.
    pub(crate) fn forget_one(&self) {
        let mut process = self.process.lock();
        if process.up && !process.hung && !process.cache.is_empty() {
            let event = self.evict(&mut process, &[]);
            drop(process);
            self.line.publish(event);
        }
    }

    /// Drops the whole cache, as an operator may ask an engine to.
    pub(crate) fn clear(&self) {
        let mut process = self.process.lock();
        if process.up && !process.hung {
            process.cache.clear();
            drop(process);
            self.line.publish(Bytes::from(rmp_serde::to_vec(&(0.5, (("AllBlocksCleared",),), 0)).unwrap()));
        }
    }

    /// Lists the keys that requests can use: of blocks whose whole prefix is cached.
    pub(crate) fn truth(&self) -> BTreeSet<BlockKey> {
        let process = self.process.lock();
        let usable = |block: &BlockId| {
            let mut at = Some(*block);
            while let Some(block) = at {
                if !process.cache.contains(&block) {
                    return false;
                }
                at = self.prompts.blocks[&block].0;
            }
            true
        };
        let usable = process.cache.iter().filter(|block| usable(block));
        usable.map(|block| self.prompts.blocks[block].1).collect()
    }

    /// Tells whether a process that started then ever cached a key.
    pub(crate) fn ever_cached(&self, started_ms: u64, key: BlockKey) -> bool {
        self.process.lock().ever.get(&started_ms).is_some_and(|keys| keys.contains(&key))
    }
}

pub(crate) fn digest_of(keys: &BTreeSet<BlockKey>) -> u64 {
    let mut digest = KeySetDigest::default();
    keys.iter().for_each(|key| digest.add(*key));
    digest.fold()
}

/// A batch that stores blocks, behind a block or at the beginning of a prompt.
fn stored(parent: Option<BlockId>, blocks: &[BlockId]) -> Option<Bytes> {
    if blocks.is_empty() {
        return None;
    }
    let tokens: Vec<u32> = blocks.iter().flat_map(|block| tokens(*block)).collect();
    let extra = vec![None::<()>; blocks.len()];
    let event = ("BlockStored", blocks, parent, tokens, SIZE, None::<u32>, "GPU", None::<&str>, extra);
    Some(Bytes::from(rmp_serde::to_vec(&(0.5, (event,), 0)).unwrap()))
}

fn removed(block: BlockId) -> Bytes {
    Bytes::from(rmp_serde::to_vec(&(0.5, (("BlockRemoved", [block], "GPU"),), 0)).unwrap())
}
