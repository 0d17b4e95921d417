//! The registry's conformance suite against a real `etcd`, found on the path or in `.cache/bin`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use adapter_etcd::{Config, EtcdRegistry};
use async_trait::async_trait;
use etcd_client::Client;
use parking_lot::Mutex;
use ports::Registry;
use ports::conformance::registry::{Harness, TTL, check};
use ports::registry::{Entry, Error, Event};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with ports and data of its own, which can be killed and started again.
struct Server {
    port: u16,
    peer_port: u16,
    data: TempDir,
    process: Mutex<Option<Child>>,
}

impl Server {
    async fn start() -> Self {
        let probes = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let [port, peer_port] = probes.each_ref().map(|probe| probe.local_addr().unwrap().port());
        drop(probes);
        let server = Self { port, peer_port, data: TempDir::new().unwrap(), process: Mutex::default() };
        server.run().await;
        server
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn run(&self) {
        let cached = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin/etcd");
        let peer_url = format!("http://127.0.0.1:{}", self.peer_port);
        let spawn = |program: &str| {
            Command::new(program)
                .args(["--name", "test", "--log-level", "error", "--enable-v2=false"])
                .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &format!("test={peer_url}"), "--data-dir"])
                .arg(self.data.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
        };
        let process = spawn("etcd").or_else(|_| spawn(cached));
        let Ok(process) = process else {
            panic!("no etcd on the path or in .cache/bin: run scripts/servers.sh")
        };
        *self.process.lock() = Some(process);
        let up = async {
            loop {
                if let Ok(mut client) = Client::connect([self.url()], None).await
                    && let Ok(Ok(_)) = timeout(Duration::from_secs(1), client.get("up", None)).await
                {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, Box::pin(up)).await.unwrap();
    }

    async fn kill(&self) {
        let process = self.process.lock().take();
        if let Some(mut process) = process {
            process.kill().await.unwrap();
        }
    }

    async fn registry(&self) -> EtcdRegistry {
        let config = Config { endpoints: vec![self.url()], ..Config::default() };
        EtcdRegistry::connect(&config).await.unwrap()
    }

    async fn client(&self) -> Client {
        Box::pin(Client::connect([self.url()], None)).await.unwrap()
    }
}

#[async_trait]
impl Harness for Server {
    async fn connect(&self) -> Arc<dyn Registry> {
        Arc::new(self.registry().await)
    }
    async fn cut(&self) {
        self.kill().await;
    }
    async fn heal(&self) {
        self.run().await;
    }
    async fn expire(&self, key: &str) {
        let mut client = self.client().await;
        let held = client.get(key, None).await.unwrap();
        let lease = held.kvs().first().unwrap().lease();
        client.lease_revoke(lease).await.unwrap();
    }
    async fn compact(&self) {
        let mut client = self.client().await;
        let revision = client.get("any", None).await.unwrap().header().unwrap().revision();
        client.compact(revision, None).await.unwrap();
    }
}

fn entry(key: &str) -> Entry {
    Entry { key: key.to_owned(), value: "1".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms() {
    let server = Server::start().await;
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_fell_below_a_compaction_lists_again() {
    let server = Server::start().await;
    let registry = server.registry().await;
    let mut watch = registry.watch("/w/").await.unwrap();
    assert_eq!(watch.next().await, Some(Event::Reset(vec![])));
    // While the watcher's server is away, history moves on and is compacted.
    server.kill().await;
    server.run().await;
    let lease = server.registry().await.register(entry("/w/a"), TTL).await.unwrap();
    for value in ["2", "3"] {
        lease.update(value.into()).await.unwrap();
    }
    Harness::compact(&server).await;
    let last = Entry { key: "/w/a".to_owned(), value: "3".into() };
    let caught_up = async {
        loop {
            match watch.next().await.unwrap() {
                Event::Reset(entries) if entries == [last.clone()] => return,
                Event::Put(entry) if entry == last => return,
                Event::Reset(_) | Event::Put(_) | Event::Deleted { .. } => {}
            }
        }
    };
    timeout(PATIENCE, caught_up).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_start_before_its_server_and_fails_in_time() {
    let server = Server::start().await;
    server.kill().await;
    let registry = server.registry().await;
    let listed = timeout(Duration::from_secs(3), registry.list("/")).await.unwrap();
    assert!(matches!(listed, Err(Error::Unreachable)), "{listed:?}");
    server.run().await;
    let listed = async {
        while registry.list("/").await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, listed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_survives_a_restart_of_the_server() {
    let server = Server::start().await;
    let registry = server.registry().await;
    let lease = registry.register(entry("/k"), Duration::from_secs(10)).await.unwrap();
    server.kill().await;
    server.run().await;
    assert!(timeout(Duration::from_secs(5), lease.lost()).await.is_err());
    assert_eq!(registry.list("/k").await.unwrap(), [entry("/k")]);
}
