//! The bus's conformance suite against a real `nats-server`, found on the path or in `.cache/bin`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use adapter_nats::{Config, Credentials, NatsBus};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use ports::bus::{Link, Message, Received};
use ports::conformance::bus::{Harness, check};
use ports::{Bus, bus};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a port of its own, which can be killed and started again.
struct Server {
    port: u16,
    args: Vec<&'static str>,
    process: Mutex<Option<Child>>,
}

impl Server {
    async fn start(args: &[&'static str]) -> Self {
        let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let server = Self { port, args: args.to_vec(), process: Mutex::default() };
        server.run().await;
        server
    }

    async fn run(&self) {
        let cached = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin/nats-server");
        let spawn = |program: &str| {
            Command::new(program)
                .args(["--addr", "127.0.0.1", "--port", &self.port.to_string()])
                .args(&self.args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
        };
        let process = spawn("nats-server").or_else(|_| spawn(cached));
        let Ok(process) = process else {
            panic!("no nats-server on the path or in .cache/bin: run scripts/servers.sh")
        };
        *self.process.lock() = Some(process);
        let up = async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, up).await.unwrap();
    }

    async fn kill(&self) {
        let process = self.process.lock().take();
        if let Some(mut process) = process {
            process.kill().await.unwrap();
        }
    }

    async fn connect(&self, credentials: Credentials) -> Arc<NatsBus> {
        let servers = vec![format!("nats://127.0.0.1:{}", self.port)];
        let config = Config { servers, name: "test".to_owned(), credentials, tls: None };
        Arc::new(NatsBus::connect(&config).await.unwrap())
    }
}

async fn link_is(bus: &NatsBus, wanted: Link) {
    let mut link = bus.link();
    let outcome = timeout(PATIENCE, link.wait_for(|link| *link == wanted)).await;
    outcome.unwrap().unwrap();
}

#[async_trait]
impl Harness for Server {
    async fn connect(&self) -> Arc<dyn Bus> {
        let bus = self.connect(Credentials::None).await;
        link_is(&bus, Link::Up).await;
        bus
    }
    async fn cut(&self) {
        self.kill().await;
    }
    async fn heal(&self) {
        self.run().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bus_conforms() {
    let server = Server::start(&[]).await;
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_start_before_its_server() {
    let server = Server::start(&[]).await;
    server.kill().await;
    let bus = server.connect(Credentials::None).await;
    let early = bus.publish(Message { subject: "early".to_owned(), ..Message::default() }).await;
    assert!(matches!(early, Err(bus::Error::Disconnected)), "{early:?}");
    let mut subscription = bus.subscribe("late", 10).await.unwrap();
    server.run().await;
    link_is(&bus, Link::Up).await;
    let message = Message { subject: "late".to_owned(), payload: Bytes::from("x"), ..Message::default() };
    let seen = async {
        loop {
            drop(bus.publish(message.clone()).await);
            match timeout(Duration::from_millis(50), subscription.next()).await {
                Ok(Some(Received::Message(seen))) => return seen,
                Ok(Some(Received::Gap)) | Err(_) => {}
                Ok(None) => panic!("the subscription ended"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, seen).await.unwrap(), message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_checked() {
    let server = Server::start(&["--user", "sightline", "--pass", "right"]).await;
    let user =
        |password: &str| Credentials::User { name: "sightline".to_owned(), password: password.to_owned() };
    link_is(&*server.connect(user("right")).await, Link::Up).await;
    let wrong = server.connect(user("wrong")).await;
    let admitted = timeout(Duration::from_millis(500), link_is(&wrong, Link::Up)).await;
    assert!(admitted.is_err(), "a wrong password was let in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_is_noticed() {
    let server = Server::start(&[]).await;
    let bus = server.connect(Credentials::None).await;
    link_is(&bus, Link::Up).await;
    let pid = server.process.lock().as_ref().and_then(Child::id).unwrap().to_string();
    let signal =
        async |name: &str| assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
    signal("-STOP").await;
    link_is(&bus, Link::Down).await;
    signal("-CONT").await;
    link_is(&bus, Link::Up).await;
}
