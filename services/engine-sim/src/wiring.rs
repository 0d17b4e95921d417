//! From a configuration to a running engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use prompt::{Model, ModelFiles, ModelOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::{self, Engine};
use crate::config::Config;
use crate::event_codec::{EventCodec, EventFormat};
use crate::kv_event_source::KvEventSource;
use crate::kv_publisher::{EventSink, KvPublisher, PublisherConfig};
use crate::listener;
use crate::media::{MediaConfig, MediaLoader};
use crate::rank::Rank;
use crate::scheduler::Limits;
use crate::time_model::TimeModel;
use crate::vocabulary::Vocabulary;
use crate::wall_clock;
use crate::zmq_endpoint::{self, Side};

const STOP_DEADLINE: Duration = Duration::from_secs(1);
/// Several engines may share a process; each needs little more than the prompts it runs.
const SEGMENT_CACHE_BYTES_MAX: u64 = 16 << 20;

/// An engine that serves; dropping it stops it at once.
#[derive(Debug)]
pub struct Running {
    /// Address of the HTTP server, with its real port.
    pub addr: SocketAddr,
    /// Name under which the model is served.
    pub model: String,
    /// Longest prompt and reply together, in tokens.
    pub max_model_len: u32,
    /// Event endpoints by rank, with their real ports; empty if no events are published.
    pub event_sources: Vec<KvEventSource>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    /// Stops the engine and waits, at most a second, until its tasks have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_DEADLINE, ended).await.is_err() {
            tracing::warn!("engine did not stop in time");
        }
    }

    /// Waits until the engine has stopped by itself, which it does only if a task of it ended.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs an engine until `shutdown` is cancelled.
///
/// # Errors
/// As [`start`]; also if a part of the engine ended by itself.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut running = start(config).await?;
    tokio::select! {
        () = shutdown.cancelled() => running.stop().await,
        () = running.ended() => anyhow::bail!("a part of the simulated engine has ended"),
    }
    Ok(())
}

/// Starts an engine and returns once it listens. Any number can run in one process.
///
/// # Errors
/// One sentence on what is wrong: a setting, the model directory, a busy port.
pub async fn start(config: Config) -> anyhow::Result<Running> {
    config.check()?;
    let started = wall_clock::now();
    let (model, vocabulary) = load_model(&config).await?;
    let max_model_len = max_model_len(&config, &model);
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", config.listen))?;
    let addr = listener.local_addr().context("listener has no address")?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut ranks = Vec::new();
    let mut event_sources = Vec::new();
    for rank in 0..config.data_parallel_size {
        let sink = match publisher_config(&config, rank)? {
            Some(publisher) => Some(publish(publisher, &mut event_sources, &mut tasks, &stop).await?),
            None => None,
        };
        let (handle, rank) = Rank::new(limits(&config), time_model(&config), config.max_num_waiting, sink);
        tasks.spawn(rank.run(stop.clone()));
        ranks.push(handle);
    }
    let version = version(config.event_format);
    let engine = Engine {
        model_name: config.model_name(),
        model_path: model_path(&config),
        version,
        fingerprint: format!("engine-sim-{version}"),
        model,
        vocabulary,
        media: MediaLoader::new(media_config(&config)).context("cannot set up the HTTP client")?,
        ranks,
        event_sources: event_sources.clone(),
        max_model_len,
        block_size: config.block_size,
        kv_blocks: config.kv_blocks,
        reply_tokens: (config.reply_tokens > 0).then_some(config.reply_tokens),
        prompt_tokens_details: config.prompt_tokens_details,
        started,
        requests: AtomicU64::new(0),
    };
    info!(model = engine.model_name, %addr, max_model_len, "simulated engine serves");
    let model = engine.model_name.clone();
    let router = api::router(Arc::new(engine), config.body_bytes_max);
    tasks.spawn(listener::serve(listener, router, config.connections_max, stop.clone()));
    Ok(Running { addr, model, max_model_len, event_sources, stop, tasks })
}

async fn load_model(config: &Config) -> anyhow::Result<(Model, Arc<Vocabulary>)> {
    let directory = config.model_dir.clone();
    let options = ModelOptions {
        context_length: config.max_model_len,
        segment_cache_bytes_max: SEGMENT_CACHE_BYTES_MAX,
        media_kwargs: config.mm_processor_kwargs.clone().unwrap_or_default().into_map(),
        ..ModelOptions::default()
    };
    let load = move || -> anyhow::Result<_> {
        let model = Model::new(&ModelFiles::read(&directory)?, options)
            .with_context(|| format!("cannot use the model in {}", directory.display()))?;
        let vocabulary = Arc::new(Vocabulary::new(&model));
        Ok((model, vocabulary))
    };
    tokio::task::spawn_blocking(load).await.context("loading the model was cancelled")?
}

/// Returns the longest context: what is configured, else the model's, and no more than the blocks of a rank hold.
fn max_model_len(config: &Config, model: &Model) -> u32 {
    let held = usable_blocks(config).saturating_mul(config.block_size);
    let wanted = config.max_model_len.or(model.facts().context_length).unwrap_or(held);
    wanted.min(held)
}

/// Returns the blocks that sequences can use: vLLM keeps one back as a placeholder.
const fn usable_blocks(config: &Config) -> u32 {
    config.kv_blocks.saturating_sub(1)
}

fn limits(config: &Config) -> Limits {
    Limits {
        block_size: config.block_size,
        blocks: usable_blocks(config),
        running_max: config.max_num_seqs,
        step_tokens_max: config.max_num_batched_tokens,
        encoder_tokens_max: config.encoder_cache_tokens,
    }
}

const fn time_model(config: &Config) -> TimeModel {
    TimeModel {
        prefill_tokens_per_second: config.prefill_tokens_per_second,
        encode_tokens_per_second: config.encode_tokens_per_second,
        decode_step_ms: config.decode_step_ms,
        speed: config.speed,
    }
}

fn media_config(config: &Config) -> MediaConfig {
    MediaConfig {
        model_path: model_path(config),
        items_max: config.images_max,
        bytes_max: config.image_bytes_max,
        fetch_timeout: Duration::from_millis(config.image_fetch_timeout_ms),
        cached_items_max: config.mm_cache_items,
        local_path: config.allowed_local_media_path.clone(),
        domains: config.allowed_media_domains.clone(),
        recorded_max: config.media_recorded_max,
    }
}

fn model_path(config: &Config) -> String {
    config.model_dir.display().to_string()
}

/// Returns the vLLM release whose events have this layout.
const fn version(format: EventFormat) -> &'static str {
    match format {
        EventFormat::Map => "0.32.0",
        EventFormat::Array => "0.23.0",
    }
}

fn publisher_config(config: &Config, rank: u32) -> anyhow::Result<Option<PublisherConfig>> {
    let Some(events) = &config.kv_events else { return Ok(None) };
    let codec = EventCodec {
        format: config.event_format,
        hashes: config.event_hashes,
        block_size: config.block_size,
        rank,
    };
    Ok(Some(PublisherConfig {
        events: zmq_endpoint::for_rank(events, rank)?,
        side: if config.kv_events_bind { Side::Bind } else { zmq_endpoint::side(events) },
        replay: config.kv_replay.as_deref().map(|replay| zmq_endpoint::for_rank(replay, rank)).transpose()?,
        topic: config.kv_topic.clone(),
        codec,
    }))
}

async fn publish(
    config: PublisherConfig,
    sources: &mut Vec<KvEventSource>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> anyhow::Result<EventSink> {
    let endpoints = format!("{} and {}", config.events, config.replay.as_deref().unwrap_or("no replay"));
    let topic = config.topic.clone();
    let bound = KvPublisher::bind(config).await;
    let (sink, publisher) = bound.with_context(|| format!("cannot publish events at {endpoints}"))?;
    sources.push(KvEventSource::new(publisher.events.clone(), publisher.replay.clone(), topic));
    tasks.spawn(publisher.run(stop.clone()));
    Ok(sink)
}
