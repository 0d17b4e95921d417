//! Dynamo's default index, with one thread that applies events, as its router runs it.

use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use dynamo_kv_router::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::{SyncIndexer, WorkerTask};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};

use crate::index::Index;
use crate::meter::clock;
use crate::workload::{Event, Kind, Workload};

pub struct Dynamo {
    tree: Arc<ConcurrentRadixTreeCompressed>,
    queries: Vec<LocalBlockHash>,
    tasks: flume::Sender<WorkerTask>,
    thread: JoinHandle<()>,
    /// Holds the thread back until the first events are queued, so that it is not measured waiting for them.
    gate: Option<Arc<Barrier>>,
}

impl Dynamo {
    pub fn new(workload: &Workload) -> Self {
        let (tasks, queue) = flume::unbounded();
        let tree = Arc::new(ConcurrentRadixTreeCompressed::new());
        let gate = Arc::new(Barrier::new(2));
        let thread = {
            let (tree, gate) = (Arc::clone(&tree), Arc::clone(&gate));
            std::thread::spawn(move || {
                gate.wait();
                tree.worker(queue, None).ok();
            })
        };
        let queries = workload.query_locals.iter().copied().map(LocalBlockHash).collect();
        Self { tree, queries, tasks, thread, gate: Some(gate) }
    }

    /// CPU nanoseconds of the applying thread so far.
    fn busy(&self) -> u64 {
        let mut id = 0;
        // SAFETY: the thread runs until the process ends.
        unsafe { libc::pthread_getcpuclockid(self.thread.as_pthread_t(), &mut id) };
        clock(id)
    }

    fn send(&self, task: WorkerTask) {
        self.tasks.send(task).ok();
    }

    fn flush(&self) {
        let (done, wait) = tokio::sync::oneshot::channel();
        self.send(WorkerTask::Flush(done));
        wait.blocking_recv().ok();
    }

    fn query(&self, (from, len): (usize, usize)) -> &[LocalBlockHash] {
        &self.queries[from..from + len]
    }
}

impl Index for Dynamo {
    fn apply(&mut self, workload: &Workload, events: &[Event]) -> u64 {
        let ready: Vec<RouterEvent> = (0..).zip(events).map(|(id, event)| router_event(workload, event, id)).collect();
        let held = self.gate.take();
        let begin = self.busy();
        if held.is_some() {
            ready.into_iter().for_each(|event| self.send(WorkerTask::Event(event)));
            held.inspect(|gate| {
                gate.wait();
            });
        } else {
            ready.into_iter().for_each(|event| self.send(WorkerTask::Event(event)));
        }
        self.flush();
        self.busy() - begin
    }

    fn each(&mut self, query: (usize, usize)) -> usize {
        self.tree.find_matches(self.query(query), false).scores.len()
    }

    fn other(&mut self, _: (usize, usize)) -> Option<usize> {
        None
    }

    fn answer(&mut self, query: (usize, usize)) -> Vec<(u32, u32)> {
        let scores = self.tree.find_matches(self.query(query), false).scores;
        scores.iter().map(|(worker, depth)| (worker.worker_id as u32, *depth)).collect()
    }

    fn touch(&self, query: (usize, usize)) -> u64 {
        self.query(query).iter().fold(0, |acc, hash| acc ^ hash.0)
    }

    fn remove(&mut self, worker: u32) -> u64 {
        let begin = self.busy();
        let (resp, wait) = tokio::sync::oneshot::channel();
        self.send(WorkerTask::RemoveWorker { worker_id: u64::from(worker), sweep_tree: true, resp });
        wait.blocking_recv().ok();
        self.busy() - begin
    }

    fn tidy(&mut self) {
        (0..3).for_each(|_| self.send(WorkerTask::CleanupStaleChildren));
        self.flush();
    }
}

fn router_event(workload: &Workload, event: &Event, event_id: u64) -> RouterEvent {
    let keys = &workload.keys[event.from..event.from + event.len];
    let locals = &workload.locals[event.from..event.from + event.len];
    let data = match event.kind {
        Kind::Stored { parent } => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: keys.iter().zip(locals).map(|(key, local)| stored(*key, *local)).collect(),
        }),
        Kind::Removed => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: keys.iter().copied().map(ExternalSequenceBlockHash).collect(),
        }),
    };
    RouterEvent::new(u64::from(event.holder), KvCacheEvent { event_id, data, dp_rank: 0 })
}

fn stored(key: u64, local: u64) -> KvCacheStoredBlockData {
    KvCacheStoredBlockData {
        block_hash: ExternalSequenceBlockHash(key),
        tokens_hash: LocalBlockHash(local),
        mm_extra_info: None,
    }
}
