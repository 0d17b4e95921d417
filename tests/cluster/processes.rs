//! A cluster of processes on a real nats-server and etcd, each with a log of its own.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::bus_proxy::BusProxy;
use crate::process::Process;
use crate::up::{DEADLINE, Ports};

const MODEL_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl");

/// How many of each there are, and how they are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) frontends: u16,
    pub(crate) indexers: u16,
    /// Engines, each with an agent; workers are `w0`, `w1`, ….
    pub(crate) workers: u16,
    /// Options of engines beside those that all have.
    pub(crate) engine: &'static str,
    /// Options of agents beside those that all have.
    pub(crate) agent: &'static str,
    /// Options of frontends beside those that all have, in turn.
    pub(crate) frontend: [&'static str; 2],
    /// Port on loopback where all send their spans; none where nobody asks for them.
    pub(crate) otlp_port: Option<u16>,
    /// Seed of the proxies before NATS: one for the last frontend alone, one for all others; none for no proxies.
    pub(crate) proxied: Option<u64>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            frontends: 2,
            indexers: 1,
            workers: 3,
            engine: "--speed 0",
            agent: "--drain-ms 0",
            frontend: [""; 2],
            otlp_port: None,
            proxied: None,
        }
    }
}

/// etcd, NATS, engines with agents, frontends without a model directory, indexers.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) shape: Shape,
    pub(crate) etcd: Process,
    pub(crate) nats: Process,
    pub(crate) engines: Vec<Process>,
    pub(crate) agents: Vec<Process>,
    /// The frontends, then the indexers.
    pub(crate) replicas: Vec<Process>,
    /// Where clients ask the frontends.
    pub(crate) frontends: Vec<String>,
    /// Where operators ask the frontends and the indexers.
    pub(crate) indexes: Vec<String>,
    /// Base URLs of the engines.
    pub(crate) engine_urls: Vec<String>,
    /// URL of NATS.
    pub(crate) nats_url: String,
    pub(crate) nats_port: u16,
    pub(crate) etcd_port: u16,
    /// Where the agents say how they are.
    pub(crate) agent_urls: Vec<String>,
    /// What stands before NATS: for the last frontend, for all others.
    pub(crate) proxies: Vec<BusProxy>,
    pub(crate) http: reqwest::Client,
    // Given up last: processes that still run use them.
    dir: TempDir,
    ports: PortPool,
    /// Options of each worker's agents, beside those of one alone.
    agent_args: Vec<String>,
}

impl Cluster {
    /// Starts two frontends, an indexer and three workers.
    pub(crate) async fn start() -> Self {
        Self::shaped(Shape::default()).await
    }

    /// Starts everything; servers first, so that nothing has a reason to complain.
    pub(crate) async fn shaped(shape: Shape) -> Self {
        let mut ports = PortPool::default();
        let dir = tempfile::tempdir().unwrap();
        let [nats_port, etcd_port, peer_port] = [ports.next(), ports.next(), ports.next()];
        let (client, peer) = (format!("http://{}", at(etcd_port)), format!("http://{}", at(peer_port)));
        let etcd = format!(
            "--data-dir {} --listen-client-urls {client} --advertise-client-urls {client} --listen-peer-urls {peer} \
             --initial-advertise-peer-urls {peer} --initial-cluster default={peer}",
            dir.path().join("etcd").display()
        );
        let mut cluster = Self {
            shape,
            etcd: Process::start_new("etcd", "etcd", &etcd),
            nats: Process::start_new("nats", "nats-server", &format!("--addr 127.0.0.1 --port {nats_port}")),
            engines: Vec::new(),
            agents: Vec::new(),
            replicas: Vec::new(),
            frontends: Vec::new(),
            indexes: Vec::new(),
            agent_urls: Vec::new(),
            engine_urls: Vec::new(),
            nats_url: format!("nats://{}", at(nats_port)),
            nats_port,
            etcd_port,
            proxies: Vec::new(),
            http: client_without_proxy(),
            dir,
            ports,
            agent_args: Vec::new(),
        };
        for (proxy, seed) in (0..2).zip(shape.proxied.into_iter().cycle()) {
            let server = SocketAddr::from(([127, 0, 0, 1], nats_port));
            cluster.proxies.push(BusProxy::start(server, seed.wrapping_add(proxy)).await);
        }
        for port in [nats_port, etcd_port] {
            answers(port).await;
        }
        cluster.add_workers().await;
        cluster.add_replicas();
        cluster.settled().await;
        cluster
    }

    /// Options of a part of the cluster; `alone` if it reaches NATS by a way of its own.
    fn shared(&self, alone: bool) -> String {
        let proxy = self.proxies.get(usize::from(!alone));
        let nats = proxy.map_or(&self.nats_url, |proxy| &proxy.url);
        let otlp = self.otlp();
        format!("--nats {nats} --etcd http://{} --namespace test {otlp}", at(self.etcd_port))
    }

    fn otlp(&self) -> String {
        let option = |port| format!("--otlp-endpoint http://{}", at(port));
        self.shape.otlp_port.map(option).unwrap_or_default()
    }

    /// Starts the engines, then their agents.
    async fn add_workers(&mut self) {
        let model = format!("--model tiny-vl --model-dir {MODEL_DIR}");
        let mut workers = Vec::new();
        for index in 0..self.shape.workers {
            let [http, events, replay] = [self.ports.next(), self.ports.next(), self.ports.next()];
            let feed = format!("--kv-events tcp://{} --kv-replay tcp://{}", at(events), at(replay));
            let engine =
                format!("--listen {} --kv-events-bind {feed} {model} {}", at(http), self.shape.engine);
            let engine = format!("{engine} {}", self.otlp());
            self.engines.push(Process::sightline(&format!("engine {index}"), "engine-sim", &engine));
            workers.push((index, http, feed));
        }
        for (index, http, feed) in workers {
            answers(http).await;
            let engine = format!("--id w{index} --engine http://{} {feed} {model}", at(http));
            self.agent_args.push(format!("{engine} {} {}", self.shape.agent, self.shared(false)));
            self.engine_urls.push(format!("http://{}", at(http)));
            let (agent, url) = self.agent_of(index.into(), &format!("agent {index}"));
            self.agents.push(agent);
            self.agent_urls.push(url);
        }
    }

    /// Starts an agent of a worker, with a state directory of its own; answers where it says how it is.
    pub(crate) fn agent_of(&mut self, worker: usize, name: &str) -> (Process, String) {
        let own = at(self.ports.next());
        let state = self.dir.path().join(name.replace(' ', "-"));
        let args = format!("{} --listen {own} --state-dir {}", self.agent_args[worker], state.display());
        (Process::sightline(name, "agent", &args), format!("http://{own}"))
    }

    /// Starts the frontends and indexers.
    fn add_replicas(&mut self) {
        for index in 0..self.shape.frontends {
            let [clients, operators] = [self.ports.next(), self.ports.next()];
            let listen = format!("--listen {} --admin-listen {}", at(clients), at(operators));
            let cache = self.dir.path().join(format!("f{index}"));
            let alone = index + 1 == self.shape.frontends;
            let own = self.shape.frontend[usize::from(index) % 2];
            let frontend = format!("{listen} --cache-dir {} {own} {}", cache.display(), self.shared(alone));
            self.replicas.push(Process::sightline(&format!("frontend {index}"), "frontend", &frontend));
            self.frontends.push(format!("http://{}", at(clients)));
            self.indexes.push(format!("http://{}", at(operators)));
        }
        for index in 0..self.shape.indexers {
            let own = at(self.ports.next());
            let indexer = format!("--listen {own} {}", self.shared(false));
            self.replicas.push(Process::sightline(&format!("indexer {index}"), "indexer", &indexer));
            self.indexes.push(format!("http://{own}"));
        }
    }

    /// Waits until a frontend or an indexer takes requests.
    pub(crate) async fn ready(&self, replica: usize) {
        self.until_ready(&self.indexes[replica]).await;
    }

    /// Waits until an agent's worker takes requests.
    pub(crate) async fn agent_ready(&self, agent: usize) {
        self.until_ready(&self.agent_urls[agent]).await;
    }

    /// Waits until whoever is asked there says that it is ready.
    pub(crate) async fn until_ready(&self, base: &str) {
        let end = tokio::time::Instant::now() + DEADLINE;
        let url = format!("{base}/health/ready");
        while !self.http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            assert!(tokio::time::Instant::now() < end, "{url} is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an engine listens.
    pub(crate) async fn engine_answers(&self, engine: usize) {
        let (_, port) = self.engine_urls[engine].rsplit_once(':').unwrap();
        answers(port.parse().unwrap()).await;
    }

    /// Returns the state that a frontend shows of a worker.
    pub(crate) async fn state_of(&self, operators: &str, worker: &str) -> Option<String> {
        Some(self.row_of(operators, worker).await?["state"].as_str()?.to_owned())
    }

    /// Returns all that a frontend shows of a worker.
    pub(crate) async fn row_of(&self, operators: &str, worker: &str) -> Option<Value> {
        let shown = self.get(&format!("{operators}/admin/workers")).await?;
        shown["workers"].as_array()?.iter().find(|row| row["worker"] == worker).cloned()
    }

    /// Asks for JSON; none where nobody answers.
    pub(crate) async fn get(&self, url: &str) -> Option<Value> {
        self.http.get(url).send().await.ok()?.json().await.ok()
    }

    /// Everything that Sightline's processes have printed.
    pub(crate) fn log(&self) -> String {
        self.processes().map(Process::log).collect()
    }

    /// Lines that Sightline's processes logged as WARN or ERROR.
    pub(crate) fn loud_lines(&self) -> Vec<String> {
        self.processes().flat_map(|it| it.loud_since(0).0).collect()
    }

    /// Sightline's processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.agents.iter().chain(&self.replicas).chain(&self.engines)
    }
}

/// Ports that no other test takes.
#[derive(Debug, Default)]
pub(crate) struct PortPool {
    blocks: Vec<Ports>,
    left: std::ops::Range<u16>,
}

impl PortPool {
    pub(crate) fn next(&mut self) -> u16 {
        self.left.next().unwrap_or_else(|| {
            let block = Ports::lock();
            self.left = block.all();
            self.blocks.push(block);
            self.left.next().unwrap()
        })
    }
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn client_without_proxy() -> reqwest::Client {
    // Another test of this process may have installed it already.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap()
}

/// Waits until something listens on a port.
pub(crate) async fn answers(port: u16) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(tokio::time::Instant::now() < end, "nothing listens on port {port}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
