//! A frontend with scripted workers, and a client.

use std::sync::Arc;
use std::time::Duration;

use adapter_http::{EngineConfig, HttpEngine};
use bytes::Bytes;
use frontend::{Config, Frontend, LoadedModels, ModelConfig, Ports};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use identity::{ModelName, WorkerId};
use membership::Card;
use membership::card::State;
use ports::engine::memory::{MemoryEngine, Reply};
use ports::engine::{Endpoint, Request, Response};
use ports::media_source::memory::MemorySource;
use ports::registry::{Entry, Lease};
use ports::{Engine, InMemoryBus, InMemoryRegistry, MediaSource, Registry, TokioClock};
use serde_json::Value;

pub(crate) const MODEL: &str = "tiny-vl";
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A frontend, its surroundings, and a client of it.
pub(crate) struct Rig {
    pub(crate) frontend: Frontend,
    pub(crate) engine: MemoryEngine,
    pub(crate) media: MemorySource,
    pub(crate) client: HttpEngine,
    pub(crate) bus: InMemoryBus,
    registry: InMemoryRegistry,
    leases: Vec<Box<dyn Lease>>,
}

/// An answer read whole.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Whole {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

pub(crate) fn worker_endpoint(worker: &str) -> Endpoint {
    Endpoint::parse(&format!("http://{worker}.engine")).unwrap()
}

pub(crate) fn config() -> Config {
    let dir = std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl"));
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        models: vec![ModelConfig { name: MODEL.to_owned(), dir }],
        ..Config::default()
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(config()).await
    }

    pub(crate) async fn start_with(config: Config) -> Self {
        Self::try_start(config).await.unwrap()
    }

    pub(crate) async fn try_start(config: Config) -> anyhow::Result<Self> {
        let media = MemorySource::default();
        let mut rig = Self::start_on(config, Arc::new(media.clone())).await?;
        rig.media = media;
        Ok(rig)
    }

    /// Starts with media from elsewhere than `media`.
    pub(crate) async fn start_on(config: Config, source: Arc<dyn MediaSource>) -> anyhow::Result<Self> {
        let clock = Arc::new(TokioClock::system());
        let registry = InMemoryRegistry::new(Arc::<TokioClock>::clone(&clock));
        let (engine, media) = (MemoryEngine::default(), MemorySource::default());
        let bus = InMemoryBus::new();
        let ports = Ports {
            last_view: None,
            bus: Arc::new(bus.clone()),
            registry: Arc::new(registry.attach()),
            engine: Arc::new(engine.clone()),
            media: source,
            clock,
        };
        let models: LoadedModels = frontend::load_models(&config).unwrap();
        let frontend = Frontend::start(&config, ports, models).await?;
        let client = HttpEngine::new(EngineConfig::default());
        Ok(Self { frontend, engine, media, client, bus, registry, leases: Vec::new() })
    }

    /// Adds a worker that answers by script, and waits until the frontend knows it.
    pub(crate) async fn worker(
        &mut self,
        name: &str,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) {
        self.worker_with(name, |_| {}, script).await;
    }

    /// Adds a worker whose card is changed.
    pub(crate) async fn worker_with(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Card),
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) {
        let endpoint = worker_endpoint(name);
        let healthy = move |request: &Request| match request.path.as_str() {
            "/health" => Reply::json(StatusCode::OK, ""),
            _ => script(request),
        };
        self.engine.serve(&endpoint, healthy);
        let mut card = Card::new(WorkerId::new(name), ModelName::new(MODEL), endpoint.as_str(), 16);
        card.state = State::Ready;
        change(&mut card);
        let key = wire::registry_key::worker("default", &card.model, &card.worker);
        let entry = Entry { key, value: wire::card::encode(&card).unwrap() };
        self.leases.push(self.registry.register(entry, Duration::from_secs(3600)).await.unwrap());
        let known = self.frontend.directory().wait_for(|fleet| fleet.worker(&card.worker).is_some());
        tokio::time::timeout(SOON, known).await.unwrap();
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("http://{}", self.frontend.address())).unwrap()
    }

    /// Sends a request and returns with the head.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        let request = Request {
            method,
            path: path.parse().unwrap(),
            headers: headers.collect(),
            body: vec![Bytes::copy_from_slice(body.as_bytes())],
        };
        tokio::time::timeout(SOON, self.client.forward(&self.endpoint(), request)).await.unwrap().unwrap()
    }

    /// Asks the media listener.
    pub(crate) async fn media(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Whole {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        let path = path.parse().unwrap();
        let request = Request { method, path, headers: headers.collect(), body: Vec::new() };
        let endpoint = Endpoint::parse(self.frontend.media_url().unwrap()).unwrap();
        whole(tokio::time::timeout(SOON, self.client.forward(&endpoint, request)).await.unwrap().unwrap())
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Whole {
        whole(self.send(Method::GET, path, &[], "").await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Whole {
        whole(self.send(Method::POST, path, &[("content-type", "application/json")], body).await).await
    }

    pub(crate) async fn chat(&self, body: &str) -> Whole {
        self.post("/v1/chat/completions", body).await
    }

    /// Returns the bodies that the engines got, health probes aside.
    pub(crate) fn bodies(&self) -> Vec<Bytes> {
        let seen = self.engine.seen().into_iter();
        let seen = seen.filter(|(_, request)| request.path.path().starts_with("/v1/"));
        seen.map(|(_, request)| Bytes::from(request.body.concat())).collect()
    }
}

pub(crate) async fn whole(response: Response) -> Whole {
    let body = tokio::time::timeout(SOON, response.body.collect()).await.unwrap().unwrap().to_bytes();
    Whole { status: response.status, headers: response.headers, body }
}

/// A chat with one user message.
pub(crate) fn chat(text: &str) -> String {
    serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// An engine's answer to a chat.
pub(crate) fn reply(prompt_tokens: u32, cached_tokens: u32) -> Reply {
    let body = serde_json::json!({
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        },
    });
    Reply::json(StatusCode::OK, &body.to_string())
}

/// Polls until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, polling).await.unwrap_or_else(|_| panic!("{what}"));
}

/// A PNG header of the given size, as base64.
pub(crate) fn png(width: u32, height: u32) -> (Bytes, String) {
    use base64::Engine as _;
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\x02\0\0\0\0\0\0\0\0\0\0\0IDAT\0\0\0\0\0\0\0\0IEND\0\0\0\0");
    let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
    (Bytes::from(bytes), text)
}
