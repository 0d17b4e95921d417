//! When batches were published, and when replicas show them.

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{DirectoryArgs, DirectoryHandle, IndexerArgs, IndexerHandle, ReplicatorArgs, ReplicatorHandle};
use adapter_etcd::EtcdRegistry;
use adapter_http::{EngineConfig, HttpEngine};
use adapter_nats::NatsBus;
use adapter_zmq::{Attach, ZmqFeed};
use anyhow::{Context, ensure};
use identity::{Holder, ModelName, Rank, WorkerId};
use ports::event_feed::Received;
use ports::{Clock, EventFeed, TokioClock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::now_us;
use crate::servers::{MODEL, NAMESPACE, Servers, WORKER};

const PATIENCE: Duration = Duration::from_secs(20);

/// Listens to the engine beside its agent, for the time stamps of its batches.
pub(crate) struct Batches {
    stamps: mpsc::Receiver<(u64, f64)>,
    _task: JoinSet<()>,
}

impl Batches {
    pub(crate) fn listen(servers: &Servers) -> Self {
        let mut feed = ZmqFeed::new(adapter_zmq::Config::new(Attach::Connect(servers.events.clone()), None));
        let (stamp, stamps) = mpsc::channel(1 << 20);
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let Ok(Received::Frame(frame)) = feed.next().await else { continue };
                // A batch is an array of three, the time in seconds first: 93 cb ‖ f64 BE ‖ …
                let at = frame
                    .payload
                    .get(2..)
                    .and_then(|rest| rest.first_chunk())
                    .map(|at| f64::from_be_bytes(*at));
                if stamp.send((frame.seq, at.unwrap_or_default() * 1e6)).await.is_err() {
                    return;
                }
            }
        });
        Self { stamps, _task: task }
    }

    /// Answers when each of the first `count` batches was published.
    pub(crate) async fn take(mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut published = Vec::new();
        while published.len() < count {
            let next = tokio::time::timeout(PATIENCE, self.stamps.recv()).await;
            let (seq, at) = next.context("a batch is missing")?.context("the feed ended")?;
            ensure!(
                usize::try_from(seq)? == published.len(),
                "batch {seq} came after {} others",
                published.len()
            );
            published.push(at);
        }
        Ok(published)
    }
}

/// Replicas of the index, each on its own connections.
pub(crate) struct Replicas {
    shown: Vec<mpsc::Receiver<(u64, f64)>>,
    _nodes: Vec<(Node, ReplicatorHandle)>,
    _tasks: JoinSet<()>,
}

impl Replicas {
    /// Starts them and waits until they follow the worker.
    pub(crate) async fn start(servers: &Servers, count: usize) -> anyhow::Result<Self> {
        let mut all = Self { shown: Vec::new(), _nodes: Vec::new(), _tasks: JoinSet::new() };
        for number in 0..count {
            let (node, index, replicator) = replica(servers, number).await?;
            let holder = Holder { worker: WorkerId::new(WORKER), rank: Rank(0) };
            let live =
                |view: &actors::IndexView| view.holder(&holder).is_some_and(|it| it.agrees == Some(true));
            tokio::time::timeout(PATIENCE, index.wait_for(live))
                .await
                .context("a replica does not follow")?;
            let (show, shown) = mpsc::channel(1 << 20);
            all._tasks.spawn(watch(index, holder, show));
            all.shown.push(shown);
            all._nodes.push((node, replicator));
        }
        Ok(all)
    }

    /// Answers, by replica, when each of the first `count` deltas was visible.
    pub(crate) async fn take(mut self, count: u64) -> anyhow::Result<Vec<Vec<f64>>> {
        let mut all = Vec::new();
        for shown in &mut self.shown {
            let mut times = Vec::new();
            while (times.len() as u64) < count {
                let next = tokio::time::timeout(PATIENCE, shown.recv()).await;
                let (seq, at) = next.context("a delta is missing")?.context("a replica ended")?;
                times.resize(usize::try_from(seq)?, at);
            }
            all.push(times);
        }
        Ok(all)
    }
}

/// Notes when the index first shows a delta.
async fn watch(index: IndexerHandle, holder: Holder, show: mpsc::Sender<(u64, f64)>) {
    let mut changed = index.changed();
    let mut last = 0;
    while changed.changed().await.is_ok() {
        let at = now_us();
        let seq = index.view().holder(&holder).map_or(0, |known| known.seq);
        if seq > last && show.send((seq, at)).await.is_err() {
            return;
        }
        last = seq.max(last);
    }
}

async fn replica(
    servers: &Servers,
    number: usize,
) -> anyhow::Result<(Node, IndexerHandle, ReplicatorHandle)> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::system());
    let nats =
        adapter_nats::Config { servers: vec![servers.nats_url.clone()], ..adapter_nats::Config::default() };
    let etcd = adapter_etcd::Config { endpoints: vec![servers.etcd_url.clone()], user: None, tls: None };
    let node = Node::start(&format!("replica-{number}"));
    let directory = DirectoryArgs {
        namespace: NAMESPACE.to_owned(),
        registry: Arc::new(EtcdRegistry::connect(&etcd).await?),
        engine: Arc::new(HttpEngine::new(EngineConfig::default())),
        clock: Arc::clone(&clock),
        bounds: membership::presence::Bounds::default(),
        last_view: None,
    };
    let directory = DirectoryHandle::start(&node, directory).await?;
    let model = ModelName::new(MODEL);
    let limits = block_index::Limits { holders_max: 16, blocks_max: 1 << 20 };
    let args = IndexerArgs { model: model.clone(), limits, clock: Arc::clone(&clock) };
    let indexer = IndexerHandle::start(&node, args).await?;
    let args = ReplicatorArgs {
        namespace: NAMESPACE.to_owned(),
        model,
        bus: Arc::new(NatsBus::connect(&nats).await?),
        clock,
        indexer: indexer.clone(),
        cards: Arc::new(directory),
        listeners: Vec::new(),
        policy: membership::replica::Policy::default(),
        blocks_max: u64::from(limits.blocks_max),
        seed: number as u64,
    };
    let replicator = ReplicatorHandle::start(&node, args).await?;
    Ok((node, indexer, replicator))
}
