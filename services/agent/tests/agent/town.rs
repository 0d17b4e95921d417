//! An engine by script, with a real event wire, and what a replica hears of its agent.
#![expect(clippy::expect_used, reason = "a test's own surroundings")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, Config, Ports};
use http::StatusCode;
use identity::{BlockKey, Holder, Incarnation, ModelName, Rank, WorkerId};
use membership::card::State;
use membership::{Card, Change, Delta};
use parking_lot::Mutex;
use ports::bus::{Received, Subscription};
use ports::engine::Endpoint;
use ports::engine::memory::{MemoryEngine, Reply, Then};
use ports::{Bus, InMemoryBus, InMemoryRegistry, Registry, TokioClock};
use tokio::time::{sleep, timeout};
use wire::kv::Update;
use wire::sync::Request;

use crate::publisher::Publisher;

const URL: &str = "http://engine:8000";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Everything but the agent.
pub(crate) struct Town {
    pub(crate) bus: InMemoryBus,
    pub(crate) registry: InMemoryRegistry,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) engine: MemoryEngine,
    /// When the engine says it started, in seconds; none while it does not answer.
    pub(crate) started_s: Arc<Mutex<Option<u64>>>,
    /// What the engine runs.
    pub(crate) running: Arc<Mutex<u32>>,
}

impl Town {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TokioClock::system());
        let (started_s, running) = (Arc::new(Mutex::new(Some(1000))), Arc::new(Mutex::new(0)));
        let engine = MemoryEngine::default();
        let (started, runs) = (Arc::clone(&started_s), Arc::clone(&running));
        engine.serve(&Endpoint::parse(URL).expect("a URL"), move |request| {
            let Some(started) = *started.lock() else {
                return Reply::json(StatusCode::OK, "").then(Then::Refuse);
            };
            let body = match request.path.path() {
                "/metrics" => format!(
                    "process_start_time_seconds {started}\nvllm:num_requests_running{{engine=\"0\"}} {}\n\
                     vllm:cache_config_info{{block_size=\"32\",num_gpu_blocks=\"1000\"}} 1\n",
                    runs.lock()
                ),
                "/v1/models" => {
                    r#"{"data":[{"id":"tiny","max_model_len":4096},{"id":"sql","parent":"tiny"}]}"#.to_owned()
                }
                "/version" => r#"{"version":"0.32.0"}"#.to_owned(),
                _ => String::new(),
            };
            Reply::json(StatusCode::OK, &body)
        });
        let registry = InMemoryRegistry::new(Arc::clone(&clock) as _);
        Self { bus: InMemoryBus::new(), registry, clock, engine, started_s, running }
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports {
            bus: Arc::new(self.bus.attach()),
            registry: Arc::new(self.registry.attach()),
            engine: Arc::new(self.engine.clone()),
            clock: Arc::clone(&self.clock) as _,
        }
    }

    pub(crate) fn config(&self, publisher: &Publisher) -> Config {
        let zmq = publisher.config();
        Config {
            engine: URL.to_owned(),
            kv_events: Some(zmq.events.endpoint().to_owned()),
            kv_events_bind: matches!(zmq.events, adapter_zmq::Attach::Bind(_)),
            kv_replay: zmq.replay,
            id: Some("w0".to_owned()),
            namespace: "test".to_owned(),
            ..Config::default()
        }
    }

    pub(crate) fn agent(&self, config: Config) -> Agent {
        Agent::start(config, self.ports()).expect("the configuration is right")
    }

    /// Starts an agent that cannot reach the registry at first.
    pub(crate) fn lonely_agent(&self, config: Config) -> (Agent, InMemoryRegistry) {
        let registry = self.registry.attach();
        registry.set_reachable(false);
        let ports = Ports { registry: Arc::new(registry.clone()), ..self.ports() };
        (Agent::start(config, ports).expect("the configuration is right"), registry)
    }

    pub(crate) async fn replica(&self) -> Replica {
        let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(0) };
        let subject = wire::subject::kv("test", &ModelName::new("tiny"), &holder);
        let updates = self.bus.subscribe(&subject, 100_000).await.expect("subscribed");
        Replica { updates, incarnation: Incarnation::default(), seq: 0, keys: HashMap::new() }
    }

    /// Listens to what agents are asked.
    pub(crate) async fn questions(&self) -> Questions {
        let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(0) };
        let subject = wire::subject::sync("test", &ModelName::new("tiny"), &holder);
        Questions(self.bus.subscribe(&subject, 1000).await.expect("subscribed"))
    }

    /// Waits for a card that satisfies a condition.
    pub(crate) async fn card(&self, condition: impl Fn(&Card) -> bool) -> Card {
        let looking = async {
            loop {
                let entries =
                    self.registry.list(&wire::registry_key::workers("test")).await.unwrap_or_default();
                let cards = entries.iter().filter_map(|entry| wire::card::decode(&entry.value).ok());
                if let Some(card) = cards.into_iter().find(|card| condition(card)) {
                    return card;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, looking).await.expect("such a card appears")
    }

    pub(crate) async fn registry_is_empty(&self) -> bool {
        self.registry.list(&wire::registry_key::workers("test")).await.is_ok_and(|entries| entries.is_empty())
    }

    pub(crate) async fn ready_card(&self) -> Card {
        self.card(|card| card.state == State::Ready).await
    }
}

/// What agents are asked.
pub(crate) struct Questions(Box<dyn Subscription>);

impl Questions {
    /// Waits until agents are asked to succeed a life, and returns it.
    pub(crate) async fn next_succession(&mut self) -> Incarnation {
        let hearing = async {
            loop {
                let Some(Received::Message(message)) = self.0.next().await else { continue };
                if let Ok(Request::Succeed { silent }) = Request::decode(&message.payload) {
                    return silent;
                }
            }
        };
        timeout(PATIENCE, hearing).await.expect("somebody asks for succession")
    }
}

/// What a replica knows that hears everything.
pub(crate) struct Replica {
    updates: Box<dyn Subscription>,
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    pub(crate) keys: HashMap<BlockKey, Option<BlockKey>>,
}

impl Replica {
    /// Hears until the condition holds.
    pub(crate) async fn hear(&mut self, condition: impl Fn(&Self) -> bool) {
        let hearing = async {
            while !condition(self) {
                let Some(Received::Message(message)) = self.updates.next().await else { continue };
                if let Update::Delta(delta) = wire::kv::decode(&message.payload).expect("an update") {
                    self.apply(&delta);
                }
            }
        };
        timeout(PATIENCE, hearing).await.expect("the replica comes to know it");
    }

    /// Waits for a delta that satisfies a condition, and counts none.
    pub(crate) async fn delta(&mut self, condition: impl Fn(&Delta) -> bool) -> Delta {
        let hearing = async {
            loop {
                let Some(Received::Message(message)) = self.updates.next().await else { continue };
                if let Ok(Update::Delta(delta)) = wire::kv::decode(&message.payload)
                    && condition(&delta)
                {
                    return delta;
                }
            }
        };
        timeout(PATIENCE, hearing).await.expect("such a delta is published")
    }

    fn apply(&mut self, delta: &Delta) {
        if delta.incarnation > self.incarnation {
            (self.incarnation, self.seq) = (delta.incarnation, 0);
            self.keys.clear();
        }
        if delta.incarnation < self.incarnation || delta.seq <= self.seq {
            return;
        }
        assert_eq!(delta.seq, self.seq + 1, "no delta is missed");
        self.seq = delta.seq;
        for change in &delta.changes {
            match change {
                Change::Stored { parent, keys, .. } => {
                    let mut parent = *parent;
                    for key in keys {
                        assert!(parent.is_none_or(|parent| self.keys.contains_key(&parent)), "closed");
                        self.keys.insert(*key, parent);
                        parent = Some(*key);
                    }
                }
                Change::Removed { keys } => self.keys.retain(|key, _| !keys.contains(key)),
                Change::Cleared => self.keys.clear(),
            }
        }
    }
}
