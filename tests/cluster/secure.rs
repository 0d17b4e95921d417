//! A cluster in which everybody shows a certificate and a password, and no secret stands on a command line.

use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_certificates::{Authority, Files};

use crate::process::Process;
use crate::processes::{PortPool, answers};
use crate::up::DEADLINE;

const SECRETS: [&str; 3] = ["hush-cluster", "hush-nats", "hush-etcd"];
const MODEL_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl");

/// Servers that let in only who has certificate and password, and what a process needs for that.
struct Fortress {
    dir: TempDir,
    authority: Authority,
    own: Files,
    ports: PortPool,
    nats_port: u16,
    etcd_port: u16,
    _servers: [Process; 2],
}

impl Fortress {
    async fn start() -> Self {
        let (dir, mut ports) = (tempfile::tempdir().unwrap(), PortPool::default());
        let authority = Authority::new(dir.path(), "authority");
        let own = authority.issue(&["localhost", "127.0.0.1"]);
        let [nats_port, etcd_port, peer_port] = [ports.next(), ports.next(), ports.next()];
        let (ca, cert, key) = (shown(&authority.file), shown(&own.certificate), shown(&own.key));
        let nats = format!(
            "--addr 127.0.0.1 --port {nats_port} --user sightline --pass {} --tls --tlscert {cert} --tlskey {key} \
             --tlsverify --tlscacert {ca}",
            SECRETS[1]
        );
        let (client, peer) =
            (format!("https://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = format!(
            "--data-dir {} --listen-client-urls {client} --advertise-client-urls {client} --listen-peer-urls {peer} \
             --initial-advertise-peer-urls {peer} --initial-cluster default={peer} --cert-file {cert} --key-file {key} \
             --client-cert-auth --trusted-ca-file {ca}",
            dir.path().join("etcd").display()
        );
        let servers =
            [Process::start_new("etcd", "etcd", &etcd), Process::start_new("nats", "nats-server", &nats)];
        answers(nats_port).await;
        answers(etcd_port).await;
        let fortress = Self { dir, authority, own, ports, nats_port, etcd_port, _servers: servers };
        Box::pin(fortress.close_etcd()).await;
        for secret in SECRETS {
            std::fs::write(fortress.dir.path().join(secret), format!("{secret}\n")).unwrap();
        }
        fortress
    }

    /// Makes etcd ask for a password.
    async fn close_etcd(&self) {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let identity = Identity::from_pem(read(&self.own.certificate), read(&self.own.key));
        let authority = Certificate::from_pem(read(&self.authority.file));
        let tls = TlsOptions::new().ca_certificate(authority).identity(identity);
        let url = format!("https://localhost:{}", self.etcd_port);
        let mut client = Client::connect([url], Some(ConnectOptions::new().with_tls(tls))).await.unwrap();
        let end = tokio::time::Instant::now() + DEADLINE;
        while client.user_add("root", SECRETS[2], None).await.is_err() {
            assert!(tokio::time::Instant::now() < end, "etcd has no leader");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
    }

    /// Options of a process that may take part.
    fn options(&self) -> String {
        let (ca, cert, key) =
            (shown(&self.authority.file), shown(&self.own.certificate), shown(&self.own.key));
        let [secret, nats, etcd] = SECRETS.map(|secret| shown(&self.dir.path().join(secret)));
        format!(
            "--namespace test --secret-file {secret} --tls-cert {cert} --tls-key {key} --tls-ca {ca} \
             --nats tls://localhost:{} --nats-user sightline --nats-password-file {nats} \
             --nats-ca {ca} --nats-cert {cert} --nats-key {key} \
             --etcd https://localhost:{} --etcd-user root --etcd-password-file {etcd} \
             --etcd-ca {ca} --etcd-cert {cert} --etcd-key {key}",
            self.nats_port, self.etcd_port
        )
    }

    /// Runs a subcommand that ends by itself; returns whether it succeeded, and what it printed.
    fn run(&self, args: &str) -> (bool, String) {
        let ca = shown(&self.authority.file);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
        let output = command.args(args.split_whitespace()).env("SIGHTLINE_CA", ca).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn read(path: &PathBuf) -> reqwest::Certificate {
    reqwest::Certificate::from_pem(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secure_cluster_serves_and_shows_no_secret() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut fortress = Fortress::start().await;
    let options = fortress.options();
    let [http, events, replay, agent, clients, operators, index] = [(); 7].map(|()| fortress.ports.next());
    let feed = format!("--kv-events tcp://127.0.0.1:{events} --kv-replay tcp://127.0.0.1:{replay}");
    let model = format!("--model tiny-vl --model-dir {MODEL_DIR}");
    let engine = format!("--listen 127.0.0.1:{http} --speed 0 --kv-events-bind {feed} {model}");
    let engine = Process::sightline("engine", "engine-sim", &engine);
    answers(http).await;
    let agent_args = format!(
        "--id w0 --engine http://127.0.0.1:{http} --listen 127.0.0.1:{agent} {feed} {model} {options}"
    );
    let frontend_args =
        format!("--listen 127.0.0.1:{clients} --admin-listen 127.0.0.1:{operators} {options}");
    let parts = [
        Process::sightline("agent", "agent", &agent_args),
        Process::sightline("frontend", "frontend", &frontend_args),
        Process::sightline("indexer", "indexer", &format!("--listen 127.0.0.1:{index} {options}")),
    ];
    let end = tokio::time::Instant::now() + DEADLINE;
    for port in [agent, clients, operators, index] {
        while !fortress.run(&format!("healthcheck https://localhost:{port}/health/ready")).0 {
            let logs: String = parts.iter().map(Process::log).collect();
            assert!(tokio::time::Instant::now() < end, "{port} is not ready\n{logs}");
        }
        assert!(
            !fortress.run(&format!("healthcheck http://localhost:{port}/health/ready")).0,
            "{port} is open"
        );
    }
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([read(&fortress.authority.file)])
        .build()
        .unwrap();
    let text = "What is to be seen here, and where? ".repeat(8);
    let body = json!({"model": "tiny-vl", "max_tokens": 1, "messages": [{"role": "user", "content": text}]});
    // What the agent tells over NATS reaches the frontend: the second time it promises what the engine then finds.
    loop {
        let request = client.post(format!("https://localhost:{clients}/v1/chat/completions")).json(&body);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let promised =
            answer.headers().get("x-sightline-cached-tokens").and_then(|it| it.to_str().ok()?.parse().ok());
        let usage = answer.json::<Value>().await.unwrap()["usage"].clone();
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        if promised == cached && cached > Some(0) {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "promised {promised:?}, cached {cached:?}");
    }
    let (listed, workers) = fortress.run(&format!("workers --frontend https://localhost:{operators}"));
    assert!(listed && workers.contains("w0") && workers.contains("ready"), "{workers}");
    for process in parts.iter().chain([&engine]) {
        let line = process.command_line();
        for secret in SECRETS {
            // Files are named after what they hold.
            let said = line.split_whitespace().any(|word| word == secret);
            assert!(!said && !process.log().contains(secret), "{secret} is shown: {line}");
        }
        assert_eq!(process.loud_since(0).0, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_ends_the_start_with_its_reason() {
    let fortress = Fortress::start().await;
    let options = fortress.options();
    let wrong = shown(&fortress.dir.path().join("hush-cluster"));
    let other = shown(&Authority::new(fortress.dir.path(), "other").file);
    let (nats, etcd) = (
        format!("tls://localhost:{}", fortress.nats_port),
        format!("https://localhost:{}", fortress.etcd_port),
    );
    let file = |secret: &str| shown(&fortress.dir.path().join(secret));
    let ca = shown(&fortress.authority.file);
    for (from, to, server, reason) in [
        (
            format!("--nats-password-file {}", file("hush-nats")),
            format!("--nats-password-file {wrong}"),
            &nats,
            "refuses the credentials",
        ),
        (format!("--nats-ca {ca}"), format!("--nats-ca {other}"), &nats, "TLS fails"),
        (
            format!("--etcd-password-file {}", file("hush-etcd")),
            format!("--etcd-password-file {wrong}"),
            &etcd,
            "refuses the credentials",
        ),
        (format!("--etcd-ca {ca}"), format!("--etcd-ca {other}"), &etcd, "TLS fails"),
        (format!("--etcd-ca {ca}"), "--etcd-ca /nowhere.pem".to_owned(), &etcd, "nowhere.pem"),
    ] {
        assert!(options.contains(&from), "{from}");
        for part in
            ["frontend --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0", "indexer --listen 127.0.0.1:0"]
        {
            let (succeeded, told) = fortress.run(&format!("{part} {}", options.replace(&from, &to)));
            assert!(!succeeded && told.contains(reason), "{part} {to}: {told}");
            assert!(told.contains(server.as_str()) || reason == "nowhere.pem", "{part} {to}: {told}");
        }
    }
}

#[test]
fn printed_configurations_hide_secrets_wherever_they_come_from() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(["frontend", "--print-config", "--etcd-password", SECRETS[2]]);
    let output = command
        .env("SIGHTLINE_NATS_PASSWORD", SECRETS[1])
        .env("SIGHTLINE_SECRET", SECRETS[0])
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && text.contains("nats_password = \"***\""), "{text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
    }
}
