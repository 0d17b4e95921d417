//! An `etcd` of a test's own, found on the path or in `.cache/bin`.

use std::process::Stdio;
use std::time::Duration;

use adapter_etcd::{Config, EtcdRegistry, Tls};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, Permission, PermissionType, TlsOptions};
use parking_lot::Mutex;
use tempfile::TempDir;
use test_certificates::Authority;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The user who may do anything.
pub(crate) const ROOT: (&str, &str) = ("root", "right");
/// A user who may do anything below `/conformance/`.
pub(crate) const MEMBER: (&str, &str) = ("member", "also right");

/// A server with ports and data of its own, which can be killed and started again.
pub(crate) struct Server {
    port: u16,
    peer_port: u16,
    args: Vec<String>,
    scheme: &'static str,
    process: Mutex<Option<Child>>,
    /// As whom clients come.
    pub(crate) user: Option<(String, String)>,
    /// How clients come; none over plain TCP.
    pub(crate) tls: Option<Tls>,
    /// Data, and files of the server and of its authority.
    pub(crate) dir: TempDir,
}

impl Server {
    /// Starts a server without TLS.
    pub(crate) async fn start() -> Self {
        let server = Self::new().await;
        server.run().await;
        server
    }

    /// Starts a server that speaks only TLS with clients of its authority, and knows its users; clients come as
    /// [`MEMBER`].
    pub(crate) async fn start_secure() -> Self {
        let mut server = Self::new().await;
        let authority = Authority::new(server.dir.path(), "authority");
        let own = authority.issue(&["127.0.0.1", "localhost"]);
        let client = authority.issue(&["client"]);
        server.scheme = "https";
        let files =
            [("cert-file", &own.certificate), ("key-file", &own.key), ("trusted-ca-file", &authority.file)];
        server.args = files.iter().map(|(flag, path)| format!("--{flag}={}", path.display())).collect();
        server.args.extend(["--client-cert-auth".to_owned(), "--auth-token-ttl=1".to_owned()]);
        let client = Some((client.certificate, client.key));
        server.tls = Some(Tls { ca_file: Some(authority.file), client, domain: None });
        server.run().await;
        let mut admin = server.client().await;
        for (name, password) in [ROOT, MEMBER] {
            admin.user_add(name, password, None).await.unwrap();
            admin.role_add(name).await.unwrap();
            admin.user_grant_role(name, name).await.unwrap();
        }
        let below = Permission::new(PermissionType::Readwrite, "/conformance/").with_prefix();
        admin.role_grant_permission(MEMBER.0, below).await.unwrap();
        admin.auth_enable().await.unwrap();
        server.user = Some((MEMBER.0.to_owned(), MEMBER.1.to_owned()));
        server
    }

    async fn new() -> Self {
        let probes = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let [port, peer_port] = probes.each_ref().map(|probe| probe.local_addr().unwrap().port());
        drop(probes);
        Self {
            port,
            peer_port,
            args: Vec::new(),
            scheme: "http",
            process: Mutex::default(),
            user: None,
            tls: None,
            dir: TempDir::new().unwrap(),
        }
    }

    fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub(crate) async fn run(&self) {
        let cached = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/bin/etcd");
        let peer_url = format!("http://127.0.0.1:{}", self.peer_port);
        let spawn = |program: &str| {
            Command::new(program)
                .args(["--name", "test", "--log-level", "error", "--enable-v2=false"])
                .args(["--listen-client-urls", &self.url(), "--advertise-client-urls", &self.url()])
                .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
                .args(["--initial-cluster", &format!("test={peer_url}"), "--data-dir"])
                .arg(self.dir.path().join("data"))
                .args(&self.args)
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
                if let Ok(mut client) = Client::connect([self.url()], Some(self.options().await)).await
                    && let Ok(Ok(_)) =
                        timeout(Duration::from_secs(1), client.get("/conformance/up", None)).await
                {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, Box::pin(up)).await.unwrap();
    }

    pub(crate) async fn kill(&self) {
        let process = self.process.lock().take();
        if let Some(mut process) = process {
            process.kill().await.unwrap();
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config { endpoints: vec![self.url()], user: self.user.clone(), tls: self.tls.clone() }
    }

    pub(crate) async fn registry(&self) -> EtcdRegistry {
        EtcdRegistry::connect(&self.config()).await.unwrap()
    }

    /// What a client needs that is not the registry; who may do anything, where users are known.
    async fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new();
        if self.user.is_some() {
            options = options.with_user(ROOT.0, ROOT.1).with_auto_token_refresh(true);
        }
        if let Some(Tls { ca_file: Some(ca), client: Some((certificate, key)), .. }) = &self.tls {
            let read = async |path| tokio::fs::read(path).await.unwrap();
            let identity = Identity::from_pem(read(certificate).await, read(key).await);
            let tls =
                TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca).await)).identity(identity);
            options = options.with_tls(tls);
        }
        options
    }

    /// A client beside the registry.
    pub(crate) async fn client(&self) -> Client {
        Box::pin(Client::connect([self.url()], Some(self.options().await))).await.unwrap()
    }
}
