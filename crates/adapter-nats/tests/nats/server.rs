//! A `nats-server` of a test's own, found on the path or in `.cache/bin`.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use adapter_nats::{Config, Credentials, NatsBus, Tls};
use parking_lot::Mutex;
use ports::Bus;
use ports::bus::Link;
use tempfile::TempDir;
use test_certificates::Authority;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a port of its own, which can be killed and started again.
pub(crate) struct Server {
    port: u16,
    args: Vec<String>,
    process: Mutex<Option<Child>>,
    /// As whom clients come, where the test does not say.
    pub(crate) credentials: Credentials,
    /// How clients come; none over plain TCP.
    pub(crate) tls: Option<Tls>,
    /// Files of the server and of its authority.
    pub(crate) dir: TempDir,
}

impl Server {
    /// Starts a server without TLS.
    pub(crate) async fn start(args: &[&str]) -> Self {
        let probe = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let server = Self {
            port,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            process: Mutex::default(),
            credentials: Credentials::None,
            tls: None,
            dir: tempfile::tempdir().unwrap(),
        };
        server.run().await;
        server
    }

    /// Starts a server that speaks only TLS, with an authority of its own that clients are told of, and must show
    /// certificates of if `mutual`.
    pub(crate) async fn start_secure(args: &[&str], mutual: bool) -> Self {
        let mut server = Self::start(&[]).await;
        server.kill().await;
        let authority = Authority::new(server.dir.path(), "authority");
        let own = authority.issue(&["127.0.0.1", "localhost"]);
        let shown = |path: &Path| path.to_str().unwrap().to_owned();
        server.args = args.iter().map(|&arg| arg.to_owned()).collect();
        server.args.extend(["--tls".to_owned()]);
        server.args.extend(["--tlscert".to_owned(), shown(&own.certificate)]);
        server.args.extend(["--tlskey".to_owned(), shown(&own.key)]);
        let mut client = None;
        if mutual {
            server.args.extend(["--tlsverify".to_owned(), "--tlscacert".to_owned(), shown(&authority.file)]);
            let files = authority.issue(&["client"]);
            client = Some((files.certificate, files.key));
        }
        server.tls = Some(Tls { ca_file: Some(authority.file), client });
        server.run().await;
        server
    }

    pub(crate) async fn run(&self) {
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

    pub(crate) async fn kill(&self) {
        let process = self.process.lock().take();
        if let Some(mut process) = process {
            process.kill().await.unwrap();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.lock().as_ref().and_then(Child::id).unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            servers: vec![format!("nats://127.0.0.1:{}", self.port)],
            name: "test".to_owned(),
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
        }
    }

    pub(crate) async fn bus(&self) -> Arc<NatsBus> {
        Arc::new(NatsBus::connect(&self.config()).await.unwrap())
    }
}

pub(crate) async fn link_is(bus: &NatsBus, wanted: Link) {
    let mut link = bus.link();
    let outcome = timeout(PATIENCE, link.wait_for(|link| *link == wanted)).await;
    outcome.unwrap().unwrap();
}
