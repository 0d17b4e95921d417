//! A cluster of processes on a real nats-server and etcd, each with a log of its own.

use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

use crate::up::{DEADLINE, Ports, collect};

const MODEL_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl");
const CACHED_BINARIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin");
/// Engines, each with an agent.
pub(crate) const WORKERS: u16 = 3;

/// A program that can be killed, stopped and started again.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    program: String,
    args: Vec<String>,
    child: Option<Child>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn new(name: &str, program: &str, args: Vec<String>) -> Self {
        let mut process = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args,
            child: None,
            lines: Arc::default(),
        };
        process.start();
        process
    }

    /// Starts it, again.
    pub(crate) fn start(&mut self) {
        let spawn = |program: &str| {
            let mut command = Command::new(program);
            command
                .args(&self.args)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        };
        let child = spawn(&self.program).or_else(|_| spawn(&format!("{CACHED_BINARIES}/{}", self.program)));
        let Ok(mut child) = child else {
            panic!("no {} on the path or in .cache/bin: run scripts/servers.sh", self.program)
        };
        collect(child.stdout.take().unwrap(), Arc::clone(&self.lines));
        collect(child.stderr.take().unwrap(), Arc::clone(&self.lines));
        self.child = Some(child);
    }

    /// Ends it without a chance to say anything.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let end = tokio::time::Instant::now() + DEADLINE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(tokio::time::Instant::now() < end, "{} does not end:\n{}", self.name, self.log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn log(&self) -> String {
        self.lines.lock().iter().map(|line| format!("{}: {line}\n", self.name)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// etcd, NATS, three engines with agents, two frontends without a model directory, an indexer.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Options that all parts have.
    shared: String,
    pub(crate) etcd: Process,
    pub(crate) nats: Process,
    pub(crate) engines: Vec<Process>,
    pub(crate) agents: Vec<Process>,
    /// The frontends and the indexer.
    pub(crate) replicas: Vec<Process>,
    /// Where clients ask the frontends.
    pub(crate) frontends: Vec<String>,
    /// Where operators ask the frontends and the indexer.
    pub(crate) indexes: Vec<String>,
    /// Base URLs of the engines.
    pub(crate) engine_urls: Vec<String>,
    /// URL of NATS.
    pub(crate) nats_url: String,
    /// Where the agents say how they are.
    pub(crate) agent_urls: Vec<String>,
    pub(crate) http: reqwest::Client,
    // Given up last: processes that still run use them.
    dir: TempDir,
    ports: (Ports, Ports),
}

impl Cluster {
    /// Starts everything; servers first, so that nothing has a reason to complain.
    pub(crate) async fn start() -> Self {
        let ports = (Ports::lock(), Ports::lock());
        let dir = tempfile::tempdir().unwrap();
        let first = ports.0.first();
        let [nats_port, etcd_port, peer_port] = [0, 1, 2].map(|after| first + after);
        let nats = format!("--addr 127.0.0.1 --port {nats_port}");
        let (client, peer) = (format!("http://{}", at(etcd_port)), format!("http://{}", at(peer_port)));
        let etcd = format!(
            "--data-dir {} --listen-client-urls {client} --advertise-client-urls {client} --listen-peer-urls {peer} \
             --initial-advertise-peer-urls {peer} --initial-cluster default={peer}",
            dir.path().join("etcd").display()
        );
        let nats_url = format!("nats://{}", at(nats_port));
        let mut cluster = Self {
            shared: format!("--nats {nats_url} --etcd {client} --namespace test"),
            etcd: Process::new("etcd", "etcd", words(&etcd)),
            nats: Process::new("nats", "nats-server", words(&nats)),
            engines: Vec::new(),
            agents: Vec::new(),
            replicas: Vec::new(),
            frontends: Vec::new(),
            indexes: Vec::new(),
            agent_urls: Vec::new(),
            engine_urls: Vec::new(),
            nats_url,
            http: client_without_proxy(),
            dir,
            ports,
        };
        for port in [nats_port, etcd_port] {
            answers(port).await;
        }
        for index in 0..WORKERS {
            cluster.add_worker(index).await;
        }
        cluster.add_replicas();
        cluster.settled().await;
        cluster
    }

    /// Starts an engine, then its agent.
    async fn add_worker(&mut self, index: u16) {
        let [http, events, replay, own] = [0, 3, 6, 9].map(|after| self.ports.1.first() + index + after);
        let feed = format!("--kv-events tcp://{} --kv-replay tcp://{}", at(events), at(replay));
        let model = format!("--model tiny-vl --model-dir {MODEL_DIR}");
        let engine = format!("--listen {} --speed 0 --kv-events-bind {feed} {model}", at(http));
        self.engines.push(sightline("engine-sim", &engine));
        answers(http).await;
        let state = self.dir.path().join(format!("w{index}"));
        let places =
            format!("--engine http://{} --listen {} --state-dir {}", at(http), at(own), state.display());
        let agent = format!("--id w{index} --drain-ms 0 {places} {feed} {model} {}", self.shared);
        self.agents.push(sightline("agent", &agent));
        self.engine_urls.push(format!("http://{}", at(http)));
        self.agent_urls.push(format!("http://{}", at(own)));
    }

    /// Starts two frontends and an indexer.
    fn add_replicas(&mut self) {
        let first = self.ports.0.first();
        for index in 0..2 {
            let [clients, operators] = [3, 5].map(|after| first + after + index);
            let listen = format!("--listen {} --admin-listen {}", at(clients), at(operators));
            let cache = self.dir.path().join(format!("f{index}"));
            let frontend = format!("{listen} --cache-dir {} {}", cache.display(), self.shared);
            self.replicas.push(sightline("frontend", &frontend));
            self.frontends.push(format!("http://{}", at(clients)));
            self.indexes.push(format!("http://{}", at(operators)));
        }
        let own = at(first + 7);
        self.replicas.push(sightline("indexer", &format!("--listen {own} {}", self.shared)));
        self.indexes.push(format!("http://{own}"));
    }

    /// Waits until every frontend is ready and every replica has what the agents have: sequence and digest, not time.
    pub(crate) async fn settled(&self) {
        let end = tokio::time::Instant::now() + DEADLINE;
        while let Some(difference) = self.difference().await {
            assert!(tokio::time::Instant::now() < end, "not settled: {difference}\n{}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Waits until no frontend counts a request in flight, its own or another's.
    pub(crate) async fn idle(&self) {
        let end = tokio::time::Instant::now() + DEADLINE;
        for url in self.indexes.iter().take(self.frontends.len()) {
            loop {
                let load = self.get(&format!("{url}/admin/load")).await;
                let holders = load.as_ref().and_then(|load| load["holders"].as_array());
                let still = |holders: &Vec<Value>| holders.iter().all(|it| it["active_requests"] == 0);
                if holders.is_some_and(still) {
                    break;
                }
                assert!(tokio::time::Instant::now() < end, "{url} is not idle: {load:?}");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }

    /// Waits until a frontend or the indexer takes requests.
    pub(crate) async fn ready(&self, replica: usize) {
        self.until_ready(&self.indexes[replica]).await;
    }

    /// Waits until an agent's worker takes requests.
    pub(crate) async fn agent_ready(&self, agent: usize) {
        self.until_ready(&self.agent_urls[agent]).await;
    }

    async fn until_ready(&self, base: &str) {
        let end = tokio::time::Instant::now() + DEADLINE;
        let url = format!("{base}/health/ready");
        while !self.http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            assert!(tokio::time::Instant::now() < end, "{url} is not ready:\n{}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Names one thing that is not settled.
    async fn difference(&self) -> Option<String> {
        let mut agents = Vec::new();
        for url in &self.agent_urls {
            let Some(shown) = self.get(&format!("{url}/admin/agents")).await else {
                return Some(format!("{url} does not answer"));
            };
            agents.extend(shown["agents"].as_array().unwrap().clone());
        }
        if agents.len() != usize::from(WORKERS) || agents.iter().any(|agent| agent["phase"] != "ready") {
            return Some(format!("agents {agents:?}"));
        }
        for (engine, agent) in self.engine_urls.iter().zip(&agents) {
            let published = crate::settle::published(&self.http, engine).await;
            if agent["engine_seq"].as_u64().map_or(0, |last| last + 1) != published {
                return Some(format!("engine {engine} published {published}, agent {agent}"));
            }
        }
        for url in &self.indexes {
            let ready = self.get(&format!("{url}/health/ready")).await;
            if ready.as_ref().is_none_or(|ready| ready["status"] != "ready") {
                return Some(format!("{url} is {ready:?}"));
            }
            let Some(index) = self.get(&format!("{url}/admin/index")).await else {
                return Some(format!("{url} does not answer"));
            };
            for agent in &agents {
                let same = |holder: &&Value| holder["worker"] == agent["worker"];
                let holder = index["holders"].as_array().unwrap().iter().find(same);
                let fields = ["seq", "digest", "blocks"];
                if !holder.is_some_and(|holder| fields.iter().all(|field| holder[field] == agent[field])) {
                    return Some(format!("{url} has {holder:?}, agent {agent}"));
                }
            }
        }
        None
    }

    /// Asks for JSON; none where nobody answers.
    pub(crate) async fn get(&self, url: &str) -> Option<Value> {
        self.http.get(url).send().await.ok()?.json().await.ok()
    }

    /// Everything that the processes have printed.
    pub(crate) fn log(&self) -> String {
        self.processes().map(Process::log).collect()
    }

    /// Lines that Sightline's processes logged as WARN or ERROR.
    pub(crate) fn loud_lines(&self) -> Vec<String> {
        let loud = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        self.processes()
            .flat_map(|it| it.log().lines().filter(loud).map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.agents.iter().chain(&self.replicas).chain(&self.engines)
    }
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn sightline(part: &str, args: &str) -> Process {
    Process::new(part, env!("CARGO_BIN_EXE_sightline"), words(&format!("{part} {args}")))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn client_without_proxy() -> reqwest::Client {
    // Another test of this process may have installed it already.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap()
}

async fn answers(port: u16) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(tokio::time::Instant::now() < end, "nothing listens on port {port}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
