//! What an engine says of itself before it is followed.

use std::collections::BTreeMap;
use std::time::Duration;

use adapter_zmq::{Attach, rank_endpoint};
use anyhow::{Context, bail, ensure};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Limited};
use identity::Rank;
use ports::Engine;
use ports::engine::{Endpoint, Request, ServedModel};
use serde::Deserialize;
use tokio::time::timeout;

use crate::config::Config;

const DEADLINE: Duration = Duration::from_secs(2);
const BODY_BYTES_MAX: usize = 1 << 20;

/// What is known of an engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Discovered {
    /// The name under which clients ask for the model.
    pub(crate) model: String,
    /// Other names of it.
    pub(crate) aliases: Vec<String>,
    /// Adapters on it.
    pub(crate) adapters: Vec<String>,
    /// Longest context, in tokens; 0 where unknown.
    pub(crate) context_tokens_max: u32,
    /// Tokens per block.
    pub(crate) block_size: u32,
    /// KV blocks per rank; 0 where unknown.
    pub(crate) kv_blocks: u32,
    /// The engine's version; empty where unknown.
    pub(crate) version: String,
    /// Where each rank's events come from.
    pub(crate) ranks: Vec<RankSource>,
}

/// Where one rank's events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankSource {
    pub(crate) rank: Rank,
    pub(crate) events: Attach,
    pub(crate) replay: Option<String>,
    pub(crate) topic: String,
}

/// Asks an engine.
///
/// # Errors
/// One sentence on what the engine does not answer, or on what has to be configured.
pub(crate) async fn discover(
    engine: &dyn Engine,
    endpoint: &Endpoint,
    config: &Config,
) -> anyhow::Result<Discovered> {
    let status = engine.status(endpoint, DEADLINE).await.context("the engine's metrics cannot be read")?;
    let models = engine.models(endpoint, DEADLINE).await.context("the engine's models cannot be listed")?;
    let base = base_model(&models, config.model.as_deref())?;
    let block_size = config.block_size.or(status.block_size).filter(|size| *size > 0);
    let block_size = block_size.context("the engine does not tell its block size: give --block-size")?;
    let version = get(engine, endpoint, PathAndQuery::from_static("/version")).await.unwrap_or_default();
    Ok(Discovered {
        model: config.model.clone().unwrap_or_else(|| base.id.clone()),
        aliases: models
            .iter()
            .filter(|model| {
                model.parent.is_none() && Some(&model.id) != config.model.as_ref().or(Some(&base.id))
            })
            .map(|model| model.id.clone())
            .collect(),
        adapters: models
            .iter()
            .filter(|model| model.parent.is_some())
            .map(|model| model.id.clone())
            .collect(),
        context_tokens_max: base.context_tokens_max.unwrap_or(0),
        block_size,
        kv_blocks: status.kv_blocks.and_then(|blocks| u32::try_from(blocks).ok()).unwrap_or(0),
        version: serde_json::from_slice::<Version>(&version)
            .map(|version| version.version)
            .unwrap_or_default(),
        ranks: sources(engine, endpoint, config).await?,
    })
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// One entry of `/kv_event_sources` (vLLM from 0.31 on).
#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
}

fn base_model<'a>(models: &'a [ServedModel], named: Option<&str>) -> anyhow::Result<&'a ServedModel> {
    let mut bases = models.iter().filter(|model| model.parent.is_none());
    match named {
        None => bases.next().context("the engine serves no model"),
        Some(name) => models.iter().find(|model| model.id == name).with_context(|| {
            let served: Vec<_> = models.iter().map(|model| model.id.as_str()).collect();
            format!("the engine does not serve {name:?}, but {}", served.join(", "))
        }),
    }
}

/// Finds where events come from: as configured, else as the engine tells.
async fn sources(
    engine: &dyn Engine,
    endpoint: &Endpoint,
    config: &Config,
) -> anyhow::Result<Vec<RankSource>> {
    if let Some(events) = &config.kv_events {
        return (0..config.data_parallel_size.max(1))
            .map(|rank| configured(events, endpoint, config, rank))
            .collect();
    }
    let told = get(engine, endpoint, PathAndQuery::from_static("/kv_event_sources")).await;
    let told = told.context("the engine does not tell where its events are: give --kv-events")?;
    told_sources(&told, endpoint)
}

fn configured(events: &str, endpoint: &Endpoint, config: &Config, rank: u16) -> anyhow::Result<RankSource> {
    let at = |base: &str| {
        rank_endpoint(base, rank)
            .with_context(|| format!("endpoint {base} has no usable port for rank {rank}"))
    };
    let replay = config.kv_replay.as_deref().map(at).transpose()?;
    Ok(RankSource {
        rank: Rank(rank),
        events: Attach::configured(&at(events)?, config.kv_events_bind, endpoint.host()),
        replay: replay.map(|replay| adapter_zmq::dialled(&replay, endpoint.host())),
        topic: config.kv_topic.clone(),
    })
}

fn told_sources(told: &[u8], endpoint: &Endpoint) -> anyhow::Result<Vec<RankSource>> {
    let told: BTreeMap<u16, Source> = serde_json::from_slice(told)
        .context("the engine's list of event sources cannot be read: give --kv-events")?;
    let mut ranks = Vec::new();
    for (rank, source) in told {
        let speaks_zmq =
            source.enable_kv_cache_events && source.publisher.as_deref().is_none_or(|it| it == "zmq");
        let Some(events) = source.endpoint.filter(|_| speaks_zmq) else {
            bail!("the engine publishes no events: start it with its KV events enabled, on ZMQ");
        };
        ranks.push(RankSource {
            rank: Rank(rank),
            events: Attach::to_engine(&events, endpoint.host()),
            replay: source.replay_endpoint.map(|replay| adapter_zmq::dialled(&replay, endpoint.host())),
            topic: source.topic,
        });
    }
    ensure!(!ranks.is_empty(), "the engine lists no event source: give --kv-events");
    Ok(ranks)
}

/// Fetches a small body.
async fn get(engine: &dyn Engine, endpoint: &Endpoint, path: PathAndQuery) -> anyhow::Result<Vec<u8>> {
    let request = Request { method: Method::GET, path, headers: HeaderMap::new(), body: Vec::new() };
    let fetch = async {
        let response = engine.forward(endpoint, request).await?;
        ensure!(response.status.is_success(), "status {}", response.status);
        let body = Limited::new(response.body, BODY_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| anyhow::anyhow!(error))?.to_bytes().to_vec())
    };
    timeout(DEADLINE, fetch).await.context("no answer in time")?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::parse("http://gpu7:8000").unwrap()
    }

    #[test]
    fn configured_endpoints_count_up_by_rank() {
        let config = Config {
            kv_events: Some("tcp://*:5557".to_owned()),
            kv_replay: Some("tcp://*:5657".to_owned()),
            ..Config::default()
        };
        let source = configured("tcp://*:5557", &endpoint(), &config, 2).unwrap();
        assert_eq!(source.events, Attach::Connect("tcp://gpu7:5559".to_owned()));
        assert_eq!(source.replay.as_deref(), Some("tcp://gpu7:5659"));
        let binding = Config { kv_events_bind: true, ..config };
        let source = configured("tcp://127.0.0.1:5557", &endpoint(), &binding, 0).unwrap();
        assert_eq!(source.events, Attach::Bind("tcp://127.0.0.1:5557".to_owned()));
        assert!(configured("ipc:///run/kv", &endpoint(), &binding, 1).is_err());
    }

    #[test]
    fn what_vllm_tells_is_understood() {
        let told = br#"{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:25557","replay_endpoint":"tcp://127.0.0.1:25657","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv-events"},
                       "1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://10.0.0.1:25558","replay_endpoint":null,"topic":""}}"#;
        let ranks = told_sources(told, &endpoint()).unwrap();
        assert_eq!(ranks[0].events, Attach::Connect("tcp://gpu7:25557".to_owned()));
        assert_eq!(
            (ranks[0].replay.as_deref(), &*ranks[0].topic),
            (Some("tcp://127.0.0.1:25657"), "kv-events")
        );
        assert_eq!(ranks[1].events, Attach::Bind("tcp://10.0.0.1:25558".to_owned()));
        assert!(told_sources(br#"{"0":{"enable_kv_cache_events":false}}"#, &endpoint()).is_err());
        assert!(told_sources(b"{}", &endpoint()).is_err());
    }

    #[test]
    fn the_model_is_the_first_that_is_no_adapter() {
        let model = |id: &str, parent: Option<&str>| ServedModel {
            id: id.to_owned(),
            root: None,
            parent: parent.map(str::to_owned),
            context_tokens_max: None,
        };
        let models = [model("lora", Some("m")), model("m", None), model("alias", None)];
        assert_eq!(base_model(&models, None).unwrap().id, "m");
        assert_eq!(base_model(&models, Some("alias")).unwrap().id, "alias");
        let error = base_model(&models, Some("x")).unwrap_err().to_string();
        assert_eq!(error, "the engine does not serve \"x\", but lora, m, alias");
    }
}
