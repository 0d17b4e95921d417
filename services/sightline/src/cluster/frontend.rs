//! `sightline frontend`: one frontend of a cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use frontend::{HandOverConfig, IndexPlace, KeyConfig, Limits, MediaConfig, MediaMode, ModelConfig, Tenancy};
use prompt::Kwargs;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::cluster::connection::{self, Connection};

/// Configuration of one frontend; what is no flag is a table of the configuration file.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value_t = Self::default().listen)]
    listen: SocketAddr,
    /// Where operators connect: /admin, /metrics, explain.
    #[arg(long, default_value_t = Self::default().admin_listen)]
    admin_listen: SocketAddr,
    /// Name in request ids and load gauges; by default drawn at random.
    #[arg(long)]
    id: Option<String>,
    /// A model's name and its directory with tokenizer, chat template and configurations; repeatable. Files of other
    /// models are asked of their agents.
    #[arg(long, value_name = "NAME=DIR")]
    model_dir: Vec<String>,
    /// Directory where model files that came from agents and the workers last seen are kept; none forgets them at
    /// the end.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Where requests are looked up: local keeps an index replica here; remote asks the cluster's indexers, and routes
    /// by load what none of them answers within 5 ms.
    #[arg(long, value_enum, value_name = "PLACE", default_value_t = Self::default().index)]
    index: IndexPlace,
    /// Policy where a request names none: kv, kv-text, least-loaded, power-of-two, round-robin or random.
    #[arg(long, default_value_t = Self::default().policy)]
    policy: String,
    /// Whether tenants share what engines have cached: shared or isolated. Isolated needs keys.
    #[arg(long, value_enum, default_value_t = Self::default().tenancy)]
    tenancy: Tenancy,
    /// Network, as a CIDR, from which images are fetched although it is not public; repeatable.
    #[arg(long, value_name = "CIDR")]
    media_allow_net: Vec<String>,
    /// How engines are handed fetched images: data, url or file.
    #[arg(long, value_enum)]
    media_hand_over: Option<HandOverConfig>,
    /// Where engines get images that are handed over by URL; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    media_listen: Option<SocketAddr>,
    /// How engines reach that listener, as HOST:PORT or a base URL; by default the address it is bound to.
    #[arg(long, value_name = "HOST:PORT")]
    media_advertise: Option<String>,
    /// Decode fetched images here, once, and hand them over as bitmaps.
    #[arg(long, value_name = "BOOL")]
    media_decode: Option<bool>,
    /// What is done about images behind URLs: fetch (they are handed over) or passthrough (the engine fetches them).
    #[arg(long, value_enum)]
    media_mode: Option<MediaMode>,
    /// What is done about images of a host instead: fetch, probe or never; repeatable.
    #[arg(long, value_name = "HOST=TREATMENT")]
    media_host: Vec<String>,
    /// URL pattern of images that never change; repeatable.
    #[arg(long, value_name = "PATTERN")]
    media_immutable_url: Vec<String>,
    /// How long a request waits for what is known of its images before it is placed without, in milliseconds; 250 by
    /// default.
    #[arg(long, value_name = "MS")]
    media_budget_ms: Option<u64>,
    /// Time from being asked to end to closing the listeners, unready meanwhile, in milliseconds.
    #[arg(long)]
    leave_ms: Option<u64>,
    /// Longest time that answers may take to finish once the end was asked for, in milliseconds.
    #[arg(long)]
    drain_ms: Option<u64>,
    /// How the engines of a model were told to process media, by the model's name, where their cards do not say.
    #[arg(skip)]
    media_kwargs: BTreeMap<String, Kwargs>,
    /// Bearer keys; none lets everybody in.
    #[arg(skip)]
    keys: Vec<KeyConfig>,
    /// How media are treated.
    #[arg(skip)]
    media: MediaConfig,
    /// What the frontend takes.
    #[arg(skip)]
    limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        let own = frontend::Config::default();
        Self {
            listen: own.listen,
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9090)),
            id: None,
            model_dir: Vec::new(),
            cache_dir: None,
            index: own.index,
            policy: own.policy,
            tenancy: own.tenancy,
            media_allow_net: Vec::new(),
            media_hand_over: None,
            media_listen: None,
            media_advertise: None,
            media_decode: None,
            media_mode: None,
            media_host: Vec::new(),
            media_immutable_url: Vec::new(),
            media_budget_ms: None,
            leave_ms: None,
            drain_ms: None,
            media_kwargs: own.media_kwargs,
            keys: own.keys,
            media: own.media,
            limits: Limits { leave_ms: 2_000, ..own.limits },
        }
    }
}

impl Config {
    /// Translates to the frontend's own configuration.
    ///
    /// # Errors
    /// Names the model directory that is misspelt.
    fn own(self, connection: &Connection) -> anyhow::Result<frontend::Config> {
        let models = self.model_dir.iter().map(|spec| named_dir(spec));
        let models = models.collect::<anyhow::Result<Vec<_>>>()?;
        let mut own = frontend::Config {
            listen: self.listen,
            admin_listen: Some(self.admin_listen),
            id: self.id.unwrap_or_default(),
            namespace: connection.namespace.clone(),
            models,
            cache_dir: self.cache_dir,
            media_kwargs: self.media_kwargs,
            keys: self.keys,
            tenancy: self.tenancy,
            index: self.index,
            policy: self.policy,
            secret: connection.secret()?,
            tls: connection.tls()?,
            tls_ca: connection.tls_ca.clone(),
            media: self.media,
            limits: self.limits,
        };
        own.media.allow_networks.extend(self.media_allow_net);
        own.media.hand_over = self.media_hand_over.unwrap_or(own.media.hand_over);
        own.media.listen = self.media_listen.unwrap_or(own.media.listen);
        own.media.advertise = self.media_advertise.or(own.media.advertise);
        own.media.decode = self.media_decode.unwrap_or(own.media.decode);
        own.media.mode = self.media_mode.unwrap_or(own.media.mode);
        own.media.budget_ms = self.media_budget_ms.unwrap_or(own.media.budget_ms);
        own.media.hosts.extend(treatments(&self.media_host)?);
        own.media.immutable_urls.extend(self.media_immutable_url);
        own.limits.leave_ms = self.leave_ms.unwrap_or(own.limits.leave_ms);
        own.limits.drain_ms = self.drain_ms.unwrap_or(own.limits.drain_ms);
        Ok(own)
    }
}

/// Reads `HOST=TREATMENT` pairs.
///
/// # Errors
/// Names the one that is none.
pub(crate) fn treatments(specs: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let pair = |spec: &String| {
        let (host, treatment) = spec.split_once('=')?;
        Some((host.to_owned(), treatment.to_owned()))
    };
    let read = |spec| pair(spec).with_context(|| format!("--media-host {spec:?}: expected HOST=TREATMENT"));
    specs.iter().map(read).collect()
}

/// Reads `NAME=DIR`; a directory alone serves under its own name.
fn named_dir(spec: &str) -> anyhow::Result<ModelConfig> {
    let (name, dir) = match spec.split_once('=') {
        Some((name, dir)) => (Some(name.to_owned()), dir),
        None => (None, spec),
    };
    let dir = PathBuf::from_str(dir)?;
    let own_name = || dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name =
        name.or_else(own_name).with_context(|| format!("--model-dir {spec:?} has no name: NAME=DIR"))?;
    Ok(ModelConfig { name, dir })
}

/// Runs a frontend until `stop` is cancelled, then lets answers finish.
///
/// # Errors
/// One sentence on what cannot be used.
pub(crate) async fn run(
    config: Config,
    connection: &Connection,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let own = config.own(connection)?;
    let wires = connection.connect("frontend").await?;
    let (engine, media) = frontend::http_ports(&own)?;
    let last_view = connection::last_view(own.cache_dir.as_deref())?;
    let ports = frontend::Ports {
        last_view,
        bus: wires.bus.clone(),
        registry: wires.registry.clone(),
        engine,
        media,
        clock: wires.clock.clone(),
    };
    frontend::run(own, ports, stop).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_name_of_its_own() {
        let named = |spec: &str| named_dir(spec).map(|model| (model.name, model.dir)).ok();
        assert_eq!(named("m=a/b"), Some(("m".to_owned(), PathBuf::from("a/b"))));
        assert_eq!(named("a/b"), Some(("b".to_owned(), PathBuf::from("a/b"))));
        assert_eq!(named("/"), None);
    }
}
