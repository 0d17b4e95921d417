//! A `sightline up` of its own for a test, as a process.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

/// How long anything in these tests may take before it counts as stuck.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running `sightline up`; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Up {
    _ports: Ports,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    /// Base URLs of its frontends.
    pub(crate) frontends: Vec<String>,
    /// Base URLs of its simulated engines.
    pub(crate) engines: Vec<String>,
    /// Base URL of the listener on which its agents say how they are.
    pub(crate) agents: String,
    /// For requests to any of them.
    pub(crate) http: reqwest::Client,
}

impl Up {
    /// Starts two frontends and three engines; `args` are added to the command line.
    pub(crate) async fn start(args: &[&str]) -> Self {
        let ports = Ports::lock();
        let port = ports.first();
        let [agent_port, engine_port, event_port, replay_port] = [2, 3, 6, 9].map(|after| port + after);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
        command.arg("up").args(["--frontends", "2", "--workers", "3"]);
        command.args(["--port", &port.to_string(), "--engine-port", &engine_port.to_string()]);
        command.args(["--event-port", &event_port.to_string(), "--replay-port", &replay_port.to_string()]);
        command.args(["--agent-port", &agent_port.to_string()]);
        command.args(["--model-dir", concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl")]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take().unwrap(), Arc::clone(&lines));
        collect(child.stderr.take().unwrap(), Arc::clone(&lines));
        let bases = |first: u16, count: u16| -> Vec<String> {
            (first..first + count).map(|port| format!("http://127.0.0.1:{port}")).collect()
        };
        // Another test of this process may have installed it already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        let agents = format!("http://127.0.0.1:{agent_port}");
        let mut up = Self {
            _ports: ports,
            agents,
            child,
            lines,
            frontends: bases(port, 2),
            engines: bases(engine_port, 3),
            http,
        };
        up.wait_until_ready().await;
        up
    }

    async fn wait_until_ready(&mut self) {
        let end = tokio::time::Instant::now() + DEADLINE;
        for frontend in self.frontends.clone() {
            while !self
                .http
                .get(format!("{frontend}/health/ready"))
                .send()
                .await
                .is_ok_and(|it| it.status() == 200)
            {
                if let Some(status) = self.child.try_wait().unwrap() {
                    panic!("`sightline up` ended with {status}:\n{}", self.log());
                }
                assert!(tokio::time::Instant::now() < end, "`sightline up` is not ready:\n{}", self.log());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has printed.
    pub(crate) fn log(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// Lines logged as WARN or ERROR.
    pub(crate) fn loud_lines(&self) -> Vec<String> {
        let loud = |line: &&String| line.contains(" WARN ") || line.contains(" ERROR ");
        self.lines.lock().iter().filter(loud).cloned().collect()
    }

    /// Sends a JSON GET.
    pub(crate) async fn get(&self, url: &str) -> Value {
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    /// Interrupts the process and returns how long it took to end.
    pub(crate) async fn stop(&mut self) -> Duration {
        let began = tokio::time::Instant::now();
        let sent = Command::new("kill").args(["-INT", &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < DEADLINE, "`sightline up` does not stop:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        began.elapsed()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The processes it started end with it: they watch their standard input.
        if self.child.kill().is_ok() {
            self.child.wait().unwrap();
        }
    }
}

/// Gathers what a process prints, line by line.
pub(crate) fn collect(from: impl std::io::Read + Send + 'static, into: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().push(line);
        }
    });
}

/// A block of ports that no other test takes while this value lives: its first port is the lock.
#[derive(Debug)]
pub(crate) struct Ports {
    lock: TcpListener,
}

impl Ports {
    const BLOCKS: u16 = 1100;
    const SIZE: u16 = 16;

    /// Finds a free block below the range that the system gives out.
    pub(crate) fn lock() -> Self {
        let own = u16::try_from(std::process::id() % u32::from(Self::BLOCKS)).unwrap();
        for step in 0..Self::BLOCKS {
            let first = 12_000 + (own + step) % Self::BLOCKS * Self::SIZE;
            let Ok(lock) = TcpListener::bind(("127.0.0.1", first)) else { continue };
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if (first + 1..first + Self::SIZE).all(free) {
                return Self { lock };
            }
        }
        panic!("no block of {} ports is free", Self::SIZE);
    }

    /// The first port after the lock.
    pub(crate) fn first(&self) -> u16 {
        self.all().start
    }

    /// All ports after the lock.
    pub(crate) fn all(&self) -> std::ops::Range<u16> {
        let lock = self.lock.local_addr().unwrap().port();
        lock + 1..lock + Self::SIZE
    }
}
