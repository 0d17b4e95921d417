//! Everything that `up` runs, put together.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use adapter_http::Listener;
use agent::Agent;
use anyhow::{Context, bail, ensure};
use frontend::{Frontend, HandOverConfig};
use ports::{Bus, Clock, Engine, InMemoryBus, InMemoryRegistry, MediaSource, Registry, TokioClock};
use prompt::ModelFiles;
use telemetry::TracedBus;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::up::config::Config;
use crate::up::engines::{Attached, Engines};

/// How long answers in flight may take to finish when everything stops.
const DRAIN: Duration = Duration::from_millis(500);

/// The running parts.
#[derive(Debug)]
pub struct Fleet {
    model: String,
    attached: Vec<Attached>,
    engines: Engines,
    agents: Vec<Agent>,
    agents_at: SocketAddr,
    surface: JoinSet<()>,
    frontends: Vec<Frontend>,
    stop: CancellationToken,
}

#[derive(Clone)]
struct Wires {
    bus: Arc<dyn Bus>,
    registry: Arc<dyn Registry>,
    engine: Arc<dyn Engine>,
    media: Arc<dyn MediaSource>,
    clock: Arc<dyn Clock>,
}

impl Fleet {
    /// Starts engines, then their agents, then the frontends.
    ///
    /// # Errors
    /// One sentence on what does not start.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        ensure!(config.frontends > 0, "there is no frontend: give --frontends");
        ensure!(config.block_size > 0, "--block-size must be at least 1");
        ensure!(
            config.media_hand_over != HandOverConfig::File || config.media_dir.is_some(),
            "--media-hand-over file needs a --media-dir"
        );
        ModelFiles::read(&config.model_dir).context("--model-dir cannot be used")?;
        let (engines, attached) = Engines::start(config).await?;
        let model = config.model_name();
        let template = frontend_config(config, &model, 0)?;
        let (engine, media) = frontend::http_ports(&template)?;
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::system());
        let wires = Wires {
            bus: Arc::new(TracedBus::over(Arc::new(InMemoryBus::new()))),
            registry: Arc::new(InMemoryRegistry::new(Arc::clone(&clock))),
            engine,
            media,
            clock,
        };
        let agents = attached.iter().map(|it| start_agent(config, &model, it, &wires));
        let agents: Vec<Agent> = agents.collect::<anyhow::Result<_>>()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, config.agent_port));
        let listener = Listener::bind(address, None).await.context("for the agents (--agent-port)")?;
        let agents_at = listener.address();
        let stop = CancellationToken::new();
        let mut surface = JoinSet::new();
        surface.spawn(agent::serve(listener, agents.iter().map(Agent::view).collect(), stop.clone()));
        let models = frontend::load_models(&template)?;
        let mut frontends = Vec::new();
        for index in 0..config.frontends {
            let ports = frontend::Ports {
                last_view: None,
                bus: Arc::clone(&wires.bus),
                registry: Arc::clone(&wires.registry),
                engine: Arc::clone(&wires.engine),
                media: Arc::clone(&wires.media),
                clock: Arc::clone(&wires.clock),
            };
            let own = frontend_config(config, &model, index)?;
            let frontend = Frontend::start(&own, ports, models.clone()).await;
            frontends
                .push(frontend.with_context(|| format!("cannot start frontend {} (--port)", index + 1))?);
        }
        Ok(Self { model, attached, engines, agents, agents_at, surface, frontends, stop })
    }

    /// Waits until every engine has an agent that knows it and every frontend takes requests.
    ///
    /// # Errors
    /// Names what is not ready within `deadline`.
    pub async fn ready(&self, deadline: Duration) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + deadline;
        for (agent, attached) in self.agents.iter().zip(&self.attached) {
            let Ok(ready) = tokio::time::timeout_at(end, agent.ready()).await else {
                bail!("engine {} at {} is not ready after {deadline:?}", attached.worker, attached.spec.url);
            };
            ensure!(ready, "the agent of engine {} at {} has ended", attached.worker, attached.spec.url);
        }
        let client = reqwest::Client::builder().no_proxy().build()?;
        for frontend in &self.frontends {
            let url = format!("http://{}/health/ready", frontend.address());
            let ready = tokio::time::timeout_at(end, answers(&client, &url)).await;
            ensure!(ready.is_ok(), "frontend {} is not ready after {deadline:?}", frontend.address());
        }
        Ok(())
    }

    /// Returns where clients connect, by frontend.
    #[must_use]
    pub fn frontends(&self) -> Vec<SocketAddr> {
        self.frontends.iter().map(Frontend::address).collect()
    }

    /// Describes the parts, a line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for Attached { worker, spec } in &self.attached {
            lines.push(format!("  engine   {worker:<4} {}  events {}", spec.url, spec.kv_events));
        }
        for frontend in &self.frontends {
            lines.push(format!("  frontend      http://{}", frontend.address()));
        }
        lines.push(format!("  agents        http://{}/admin/agents", self.agents_at));
        lines
    }

    /// Spells a request, and a question about the workers, that a person can paste.
    #[must_use]
    pub fn example(&self) -> String {
        let address = self.frontends.first().map_or(String::new(), |frontend| frontend.address().to_string());
        let program = std::env::args().next().unwrap_or_else(|| "sightline".to_owned());
        format!(
            "  curl -i http://{address}/v1/chat/completions -H 'content-type: application/json' \\\n    \
             -d '{{\"model\":\"{}\",\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n  \
             {program} workers --frontend http://{address}",
            self.model
        )
    }

    /// Stops frontends, agents and engines, in this order.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let frontends: JoinSet<()> = self.frontends.into_iter().map(Frontend::stop).collect();
        frontends.join_all().await;
        let agents: JoinSet<()> = self.agents.into_iter().map(|agent| agent.stop(Duration::ZERO)).collect();
        agents.join_all().await;
        self.surface.shutdown().await;
        self.engines.stop().await;
    }
}

/// Asks a URL until it answers 200.
async fn answers(client: &reqwest::Client, url: &str) {
    while !client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn frontend_config(config: &Config, model: &str, index: u16) -> anyhow::Result<frontend::Config> {
    let port = match config.port {
        0 => 0,
        first => first.checked_add(index).context("too many frontends for the port range")?,
    };
    let mut own = frontend::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        models: vec![frontend::ModelConfig { name: model.to_owned(), dir: config.model_dir.clone() }],
        keys: config.keys.clone(),
        tenancy: config.tenancy,
        ..frontend::Config::default()
    };
    own.media.allow_networks.clone_from(&config.media_allow_net);
    own.media.hand_over = config.media_hand_over;
    own.media.decode = config.media_decode;
    own.media.mode = config.media_mode;
    own.media.hosts.extend(crate::cluster::treatments(&config.media_host)?);
    own.media.immutable_urls.clone_from(&config.media_immutable_url);
    own.media.budget_ms = config.media_budget_ms;
    own.limits.drain_ms = u64::try_from(DRAIN.as_millis())?;
    Ok(own)
}

fn start_agent(config: &Config, model: &str, attached: &Attached, wires: &Wires) -> anyhow::Result<Agent> {
    let own = agent::Config {
        engine: attached.spec.url.clone(),
        kv_events: Some(attached.spec.kv_events.clone()),
        kv_events_bind: attached.spec.bind,
        kv_replay: attached.spec.replay.clone(),
        model: Some(model.to_owned()),
        model_dir: Some(config.model_dir.clone()),
        mm_processor_kwargs: config.mm_processor_kwargs.clone(),
        id: Some(attached.worker.clone()),
        media_dir: config.media_dir.as_ref().map(|dir| dir.join(&attached.worker)),
        ..agent::Config::default()
    };
    let ports = agent::Ports {
        bus: Arc::clone(&wires.bus),
        registry: Arc::clone(&wires.registry),
        engine: Arc::clone(&wires.engine),
        clock: Arc::clone(&wires.clock),
    };
    Agent::start(own, ports)
}
