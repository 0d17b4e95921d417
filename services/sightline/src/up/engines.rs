//! The simulated engines: tasks of this process, or processes of their own.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::up::config::Config;
use crate::up::engine_spec::EngineSpec;

const READY_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An engine and the name of its worker.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// Name of the worker.
    pub(crate) worker: String,
    /// Where the engine is.
    pub(crate) spec: EngineSpec,
}

/// Engines that this process started.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    tasks: Vec<engine_sim::Running>,
    keepers: JoinSet<()>,
    stop: CancellationToken,
}

impl Engines {
    /// Starts the simulated engines that a configuration asks for; attaches real ones as they are.
    ///
    /// # Errors
    /// Names the engine that does not start, and why.
    pub(crate) async fn start(config: &Config) -> anyhow::Result<(Self, Vec<Attached>)> {
        let mut engines = Self::default();
        let mut attached = Vec::new();
        for (index, spec) in config.engine.iter().enumerate() {
            attached.push(Attached { worker: format!("w{index}"), spec: spec.clone() });
        }
        if !attached.is_empty() {
            return Ok((engines, attached));
        }
        ensure!(config.workers > 0, "there is no engine: give --workers or --engine");
        for index in 0..config.workers {
            let simulated = simulated(config, index)?;
            let spec = if config.engines_as_processes {
                engines.keep_process(&simulated).await
            } else {
                engines.start_task(simulated).await
            };
            let spec = spec.with_context(|| format!("cannot start engine w{index}"))?;
            attached.push(Attached { worker: format!("w{index}"), spec });
        }
        Ok((engines, attached))
    }

    async fn start_task(&mut self, config: engine_sim::Config) -> anyhow::Result<EngineSpec> {
        let running = engine_sim::start(config).await?;
        let source = running.event_sources.first().context("the engine publishes no events")?;
        let spec = EngineSpec {
            url: format!("http://{}", running.addr),
            kv_events: reachable(&source.endpoint),
            replay: source.replay_endpoint.as_deref().map(reachable),
            bind: false,
        };
        self.tasks.push(running);
        Ok(spec)
    }

    async fn keep_process(&mut self, config: &engine_sim::Config) -> anyhow::Result<EngineSpec> {
        let endpoint = |of: &Option<String>| of.as_deref().map(reachable);
        let spec = EngineSpec {
            url: format!("http://{}", config.listen),
            kv_events: endpoint(&config.kv_events).context("the engine publishes no events")?,
            replay: endpoint(&config.kv_replay),
            bind: false,
        };
        let mut first = spawn(config)?;
        tokio::select! {
            healthy = healthy(&spec.url) => healthy?,
            ended = first.child.wait() => bail!("it ended with {} while it started", ended?),
        }
        self.keepers.spawn(keep(config.clone(), first, self.stop.clone()));
        Ok(spec)
    }

    /// Stops all of them.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let tasks: JoinSet<()> = self.tasks.drain(..).map(engine_sim::Running::stop).collect();
        tasks.join_all().await;
        self.keepers.join_all().await;
    }
}

/// Configures simulated engine number `index`.
fn simulated(config: &Config, index: u16) -> anyhow::Result<engine_sim::Config> {
    let port = |first: u16| first.checked_add(index).context("too many engines for the port range");
    let zero_or = |first: u16| if first == 0 { Ok(0) } else { port(first) };
    Ok(engine_sim::Config {
        listen: ([127, 0, 0, 1], zero_or(config.engine_port)?).into(),
        model: Some(config.model_name()),
        model_dir: config.model_dir.clone(),
        mm_processor_kwargs: config.mm_processor_kwargs.clone(),
        block_size: config.block_size,
        kv_blocks: config.kv_blocks,
        speed: config.speed,
        kv_events: Some(format!("tcp://127.0.0.1:{}", zero_or(config.event_port)?)),
        kv_events_bind: true,
        kv_replay: Some(format!("tcp://127.0.0.1:{}", zero_or(config.replay_port)?)),
        allowed_local_media_path: config.media_dir.clone(),
        ..engine_sim::Config::default()
    })
}

/// Spells an endpoint that was bound to all addresses as one to connect to.
fn reachable(endpoint: &str) -> String {
    endpoint.replace("://*:", "://127.0.0.1:")
}

/// A process, and the end of its standard input that it lives by: waiting for a child would close its own.
struct Process {
    child: Child,
    lifeline: Option<ChildStdin>,
}

fn spawn(config: &engine_sim::Config) -> anyhow::Result<Process> {
    let binary = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(binary);
    command.arg("engine-sim").arg("--until-stdin-closes");
    command.arg(format!("--listen={}", config.listen)).arg(format!("--model={}", config.model_name()));
    command.arg("--model-dir").arg(&config.model_dir);
    command
        .arg(format!("--block-size={}", config.block_size))
        .arg(format!("--kv-blocks={}", config.kv_blocks));
    command.arg(format!("--speed={}", config.speed)).arg("--kv-events-bind");
    if let Some(kwargs) = &config.mm_processor_kwargs {
        command.arg(format!("--mm-processor-kwargs={kwargs}"));
    }
    for (flag, endpoint) in [("--kv-events", &config.kv_events), ("--kv-replay", &config.kv_replay)] {
        if let Some(endpoint) = endpoint {
            command.arg(flag).arg(endpoint);
        }
    }
    if let Some(dir) = &config.allowed_local_media_path {
        command.arg("--allowed-local-media-path").arg(dir);
    }
    command.stdin(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("cannot start an engine process")?;
    let lifeline = child.stdin.take();
    Ok(Process { child, lifeline })
}

/// Keeps a process running: starts it again, ever more slowly, until asked to stop.
async fn keep(config: engine_sim::Config, first: Process, stop: CancellationToken) {
    let mut child = Some(first);
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(mut running) = child.take() {
            tokio::select! {
                () = stop.cancelled() => {
                    drop(running.lifeline.take());
                    if tokio::time::timeout(STOP_DEADLINE, running.child.wait()).await.is_err() {
                        running.child.kill().await.ok();
                    }
                    return;
                }
                ended = running.child.wait() => info!(listen = %config.listen, ?ended, "engine process ended, starting again"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        match spawn(&config) {
            Ok(started) => {
                child = Some(started);
                pause = PAUSE_MIN;
            }
            Err(cause) => {
                warn!(cause = format!("{cause:#}"), "engine process does not start");
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

async fn healthy(url: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(1)).build()?;
    let poll = async {
        while !client
            .get(format!("{url}/health"))
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(READY_DEADLINE, poll)
        .await
        .with_context(|| format!("{url} is not healthy after {} s", READY_DEADLINE.as_secs()))
}
