//! The processes on the way: etcd, nats-server, an engine, its agent.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const NAMESPACE: &str = "bench";
pub(crate) const MODEL: &str = "tiny-vl";
pub(crate) const WORKER: &str = "w0";
const MODEL_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl");
const CACHED_BINARIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin");
const PATIENCE: Duration = Duration::from_secs(30);
/// Tokens of a prompt: four blocks, and one token more.
const TOKENS: u32 = 65;

/// Running processes; killed when dropped.
pub(crate) struct Servers {
    pub(crate) nats_url: String,
    pub(crate) etcd_url: String,
    /// Where the engine publishes.
    pub(crate) events: String,
    engine_url: String,
    agent_url: String,
    http: reqwest::Client,
    children: Vec<Child>,
    _dir: TempDir,
}

impl Servers {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let [nats, etcd, peer, engine, events, replay, agent] =
            free_ports()?.map(|port| format!("127.0.0.1:{port}"));
        let dir = tempfile::tempdir()?;
        let mut servers = Self {
            nats_url: format!("nats://{nats}"),
            etcd_url: format!("http://{etcd}"),
            events: format!("tcp://{events}"),
            engine_url: format!("http://{engine}"),
            agent_url: format!("http://{agent}"),
            http: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build()?,
            children: Vec::new(),
            _dir: dir,
        };
        let data = servers._dir.path().display();
        let etcd_args = format!(
            "--data-dir {data} --listen-client-urls http://{etcd} --advertise-client-urls http://{etcd} \
             --listen-peer-urls http://{peer} --initial-advertise-peer-urls http://{peer} \
             --initial-cluster default=http://{peer}"
        );
        let feed = format!("--kv-events tcp://{events} --kv-replay tcp://{replay}");
        let model = format!("--model {MODEL} --model-dir {MODEL_DIR}");
        let engine_args = format!(
            "engine-sim --listen {engine} --speed 0 --kv-blocks 65536 --kv-events-bind {feed} {model}"
        );
        let agent_args = format!(
            "agent --id {WORKER} --drain-ms 0 --engine http://{engine} --listen {agent} {feed} {model} \
             --nats nats://{nats} --etcd http://{etcd} --namespace {NAMESPACE}"
        );
        let (_, nats_port) = nats.rsplit_once(':').context("a port")?;
        let sightline = env!("CARGO_BIN_EXE_sightline");
        servers.spawn("etcd", &etcd_args)?;
        servers.spawn("nats-server", &format!("--addr 127.0.0.1 --port {nats_port}"))?;
        servers.spawn(sightline, &engine_args)?;
        servers.spawn(sightline, &agent_args)?;
        let url = format!("{}/health/ready", servers.agent_url);
        let poll = async {
            while !servers.http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, poll).await.context("the agent is not ready")?;
        Ok(servers)
    }

    fn spawn(&mut self, program: &str, args: &str) -> anyhow::Result<()> {
        let start = |program: &str| {
            let mut command = Command::new(program);
            command.args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn()
        };
        let child = start(program).or_else(|_| start(&format!("{CACHED_BINARIES}/{program}")));
        self.children.push(child.with_context(|| format!("{program}: run scripts/servers.sh"))?);
        Ok(())
    }

    /// Has the engine cache a prompt that is like no other from its first block on.
    pub(crate) async fn store(&self, number: u32) -> anyhow::Result<()> {
        let prompt: Vec<u32> =
            (0..TOKENS).map(|at| if at < 2 { number >> (at * 11) & 0x7ff } else { at }).collect();
        let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 1});
        let asked = self.http.post(format!("{}/v1/completions", self.engine_url)).json(&body);
        asked.send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }

    /// Asks the agent for the number of its last delta.
    pub(crate) async fn agent_seq(&self) -> anyhow::Result<u64> {
        let asked = self.http.get(format!("{}/admin/agents", self.agent_url)).send().await?;
        let shown: Value = asked.json().await?;
        shown.pointer("/agents/0/seq").and_then(Value::as_u64).context("the agent tells no sequence")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            if child.kill().is_ok() {
                child.wait().ok();
            }
        }
    }
}

fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
