//! Clients that go where a load balancer would send them: to a frontend that says it is ready.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::chat::{Failure, Outcome, post};
use crate::traffic::Traffic;

/// Requests on their way, from several clients.
#[derive(Debug)]
pub(crate) struct Load {
    mode: watch::Sender<Mode>,
    parked: watch::Receiver<usize>,
    journal: Arc<Mutex<Journal>>,
    clients: JoinSet<()>,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) answered: u64,
    /// Times that a client found a frontend gone or unready and took another.
    pub(crate) elsewhere: u64,
    pub(crate) failed: Vec<Failed>,
}

/// A request that got no whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) frontend: usize,
    pub(crate) failure: Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    Stopped,
}

/// Pause of a client after an answer, so that the machine is busy and not full.
const THINKING: Duration = Duration::from_millis(25);
const READY_DEADLINE: Duration = Duration::from_secs(2);
/// Rounds over all frontends before a client gives up.
const ROUNDS_MAX: usize = 20;

impl Load {
    /// Starts `clients` clients with conversations from `seed`: text and images, streamed and not, prefixes that repeat.
    pub(crate) fn start(frontends: &[String], http: &reqwest::Client, (clients, seed): (usize, u64)) -> Self {
        let (mode, modes) = watch::channel(Mode::Running);
        let (park, parked) = watch::channel(0);
        let journal = Arc::new(Mutex::new(Journal::default()));
        let park = Arc::new(park);
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let client = Client {
                number,
                frontends: frontends.to_vec(),
                http: http.clone(),
                traffic: Traffic::new(seed + number as u64, None),
                mode: modes.clone(),
                parked: Arc::clone(&park),
                journal: Arc::clone(&journal),
            };
            tasks.spawn(client.run());
        }
        Self { mode, parked, journal, clients: tasks }
    }

    /// Waits until no request is on its way, and lets none begin.
    pub(crate) async fn pause(&mut self) {
        self.mode.send_replace(Mode::Paused);
        let all = self.clients.len();
        self.parked.wait_for(|parked| *parked == all).await.unwrap();
    }

    /// Goes on.
    pub(crate) fn resume(&self) {
        self.mode.send_replace(Mode::Running);
    }

    /// Takes what became of the requests since it was last asked.
    pub(crate) fn journal(&self) -> Journal {
        std::mem::take(&mut *self.journal.lock())
    }

    /// Ends the clients once their requests are answered.
    pub(crate) async fn stop(self) -> Journal {
        self.mode.send_replace(Mode::Stopped);
        self.clients.join_all().await;
        std::mem::take(&mut *self.journal.lock())
    }
}

struct Client {
    number: usize,
    frontends: Vec<String>,
    http: reqwest::Client,
    traffic: Traffic,
    mode: watch::Receiver<Mode>,
    parked: Arc<watch::Sender<usize>>,
    journal: Arc<Mutex<Journal>>,
}

impl Client {
    async fn run(mut self) {
        let mut turn = self.number;
        while self.may_go_on().await {
            let body = self.traffic.next_body("tiny-vl");
            turn += 1;
            let outcome = self.ask(turn, &body).await;
            self.traffic.answered(outcome.as_ref().map_or("", |outcome| &outcome.content));
            match outcome {
                Ok(_) => self.journal.lock().answered += 1,
                Err(failed) => self.journal.lock().failed.push(failed),
            }
            tokio::time::sleep(THINKING).await;
        }
    }

    /// Waits while there is a pause; answers whether there is more to do.
    async fn may_go_on(&mut self) -> bool {
        if *self.mode.borrow_and_update() == Mode::Paused {
            self.parked.send_modify(|parked| *parked += 1);
            drop(self.mode.wait_for(|mode| *mode != Mode::Paused).await);
            self.parked.send_modify(|parked| *parked -= 1);
        }
        *self.mode.borrow() == Mode::Running
    }

    /// Sends a request to the first frontend in turn that is ready and takes the connection.
    async fn ask(&self, turn: usize, body: &Value) -> Result<Outcome, Failed> {
        let all = self.frontends.len();
        let mut last = None;
        for step in 0..ROUNDS_MAX * all {
            let frontend = (turn + step) % all;
            let url = &self.frontends[frontend];
            if self.is_ready(url).await {
                match post(&self.http, url, body, None).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(failure @ Failure::Unsent(_)) => last = Some(Failed { frontend, failure }),
                    Err(failure) => return Err(Failed { frontend, failure }),
                }
            }
            self.journal.lock().elsewhere += 1;
            if (step + 1) % all == 0 {
                tokio::time::sleep(THINKING).await;
            }
        }
        let nobody = || Failed { frontend: 0, failure: Failure::Unsent("no frontend is ready".to_owned()) };
        Err(last.unwrap_or_else(nobody))
    }

    async fn is_ready(&self, url: &str) -> bool {
        let asked = self.http.get(format!("{url}/health/ready")).timeout(READY_DEADLINE).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }
}
