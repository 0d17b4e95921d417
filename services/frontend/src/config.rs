//! A frontend's configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use adapter_http::TlsFiles;
use prompt::Kwargs;
use serde::{Deserialize, Serialize};

/// Everything a frontend can be told; every field has a default.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where operators connect; none opens no such listener.
    pub admin_listen: Option<SocketAddr>,
    /// Certificate and key of both listeners; none speaks plain HTTP.
    #[serde(skip)]
    pub tls: Option<TlsFiles>,
    /// PEM file of authorities to trust beside the system's, for engines and media origins.
    pub tls_ca: Option<PathBuf>,
    /// Names this frontend in request ids and load gauges; empty derives a name from the time of start.
    pub id: String,
    /// Namespace of workers and subjects.
    pub namespace: String,
    /// Models whose prompts can be predicted here.
    pub models: Vec<ModelConfig>,
    /// How the engines of a model were told to process media, by the model's name: JSON objects, as vLLM's
    /// `--mm-processor-kwargs`. Where none is given, the workers' cards say.
    pub media_kwargs: BTreeMap<String, Kwargs>,
    /// Directory where model files that came from agents are kept, under `models`; none keeps them in memory only.
    pub cache_dir: Option<PathBuf>,
    /// Bearer keys; none lets everybody in.
    pub keys: Vec<KeyConfig>,
    /// Whether tenants share what engines have cached; `isolated` needs keys.
    pub tenancy: Tenancy,
    /// The routing policy where a request names none.
    pub policy: String,
    /// The cluster's secret, mixed into block keys.
    pub secret: String,
    /// Media.
    pub media: MediaConfig,
    /// Where the index is that requests are looked up in.
    pub index: IndexPlace,
    /// Limits.
    pub limits: Limits,
}

/// Where a frontend looks requests up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum IndexPlace {
    /// In a replica of its own.
    #[default]
    Local,
    /// At the cluster's indexers: one message per request, the first answer wins; after 5 ms by load.
    Remote,
}

/// A model whose files are here.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The name clients use.
    pub name: String,
    /// Directory with tokenizer, template and configurations.
    pub dir: PathBuf,
}

/// A bearer key.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The secret.
    pub key: String,
    /// Whose it is.
    pub tenant: String,
    /// Whether it opens what is for operators.
    #[serde(default)]
    pub operator: bool,
}

impl std::fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyConfig").field("tenant", &self.tenant).field("operator", &self.operator).finish()
    }
}

/// Whether tenants share what engines have cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tenancy {
    /// They do: the fastest, where tenants may learn from an answer's time that somebody asked the same before.
    #[default]
    Shared,
    /// They do not: salts and media ids are of the tenant, whatever the client sends.
    Isolated,
}

/// How media are treated.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaConfig {
    /// What is done about images behind URLs: `fetch` (fetched here, handed over), or `passthrough` (the engine fetches
    /// them, only their headers are read here).
    pub mode: MediaMode,
    /// What is done about images of some hosts instead: `fetch`, `probe` (as `passthrough`) or `never` (no I/O at all
    /// here), by host: a name, `*.name`, an address, or `*`, perhaps with a port. The narrowest pattern decides.
    pub hosts: BTreeMap<String, String>,
    /// URLs (`https://*.cdn.example/blobs/*`) of which the operator promises that what is behind them never changes:
    /// where engines fetch them, they are told the URL's own identity.
    pub immutable_urls: Vec<String>,
    /// Networks, as CIDRs, from which media are fetched although they are not public.
    pub allow_networks: Vec<String>,
    /// Media items in one request.
    pub items_max: usize,
    /// Bytes of one item.
    pub item_bytes_max: u64,
    /// Bytes of all items that are fetched for one request.
    pub request_bytes_max: u64,
    /// Pixels of one image: what vLLM opens by default.
    pub pixels_max: u64,
    /// Bytes of fetched media kept.
    pub stored_bytes_max: u64,
    /// Longest time one item may take to fetch, in milliseconds.
    pub fetch_ms: u64,
    /// How long a request waits for look-ups before it is placed without what is not known yet, in milliseconds. It is
    /// sent once the rest is there, which `fetch_ms` bounds.
    pub budget_ms: u64,
    /// Redirects followed.
    pub redirects_max: u8,
    /// Fetches at once from one host.
    pub fetches_per_host_max: usize,
    /// How engines are handed fetched media: `data`, `url` or `file`.
    pub hand_over: HandOverConfig,
    /// Where engines get media if they are handed over by URL; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How engines reach that listener, as `HOST:PORT` or a base URL; none takes the address it is bound to.
    pub advertise: Option<String>,
    /// Longest time to bring one file to a worker's directory, in milliseconds; then it goes in the body.
    pub file_ms: u64,
    /// Whether images are decoded here, once, and handed over as uncompressed bitmaps.
    pub decode: bool,
    /// Largest image decoded, in pixels; larger ones are handed over as they are.
    pub decode_pixels_max: u64,
    /// Bytes of bitmaps kept.
    pub decoded_bytes_max: u64,
}

/// How engines are handed media that were fetched here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HandOverConfig {
    /// In the request's body, as data URIs: works with every engine, however it is set up.
    #[default]
    Data,
    /// By a URL of this frontend's media listener.
    Url,
    /// As files in a directory that the worker's agent fills; as data URIs to workers without one.
    File,
}

impl std::fmt::Display for HandOverConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Url => "url",
            Self::File => "file",
        })
    }
}

/// What is done about images behind URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MediaMode {
    /// The frontend fetches them and hands them over.
    #[default]
    Fetch,
    /// The engine fetches them; the frontend reads headers.
    Passthrough,
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self {
            mode: MediaMode::Fetch,
            hosts: BTreeMap::new(),
            immutable_urls: Vec::new(),
            allow_networks: Vec::new(),
            items_max: 64,
            item_bytes_max: 32 << 20,
            request_bytes_max: 256 << 20,
            pixels_max: actors::media_resolver::Config::default().pixels_max,
            stored_bytes_max: 512 << 20,
            fetch_ms: 10_000,
            budget_ms: 250,
            redirects_max: 4,
            fetches_per_host_max: 32,
            hand_over: HandOverConfig::Data,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            file_ms: 2000,
            decode: false,
            decode_pixels_max: 16 << 20,
            decoded_bytes_max: 256 << 20,
        }
    }
}

/// What a frontend takes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of one request body.
    pub body_bytes_max: u64,
    /// Bytes of all request bodies held at once, with the media fetched for them, whether kept besides or not, and the
    /// data URIs that are put into them here.
    pub held_bytes_max: u64,
    /// Longest time a body may take to arrive, in milliseconds.
    pub body_ms: u64,
    /// Connections at once.
    pub connections_max: usize,
    /// Longest time a request may wait for a worker, in milliseconds.
    pub queue_ms: u64,
    /// Longest wait for a response head of an engine, in milliseconds.
    pub head_ms: u64,
    /// Longest silence of an engine within a response, in milliseconds.
    pub idle_ms: u64,
    /// Longest time a client may take nothing of its answer, in milliseconds: then the engine's work is cancelled.
    pub stall_ms: u64,
    /// Time from being asked to end to closing the listeners, in milliseconds: balancers that look at `/health/ready`
    /// see that this frontend leaves, and its clients are served meanwhile.
    pub leave_ms: u64,
    /// Longest time streams may take to finish after the end was asked for, in milliseconds.
    pub drain_ms: u64,
    /// Decisions kept for `explain`, and as many mismatches besides.
    pub decisions_kept: usize,
    /// Holders in the index of one model.
    pub index_holders_max: u32,
    /// Distinct blocks in the index of one model.
    pub index_blocks_max: u32,
    /// CPU jobs at once; 0 takes one per core.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 << 20,
            held_bytes_max: 1 << 30,
            body_ms: 60_000,
            connections_max: 16_384,
            queue_ms: 30_000,
            head_ms: 600_000,
            idle_ms: 300_000,
            stall_ms: 120_000,
            leave_ms: 0,
            drain_ms: 30_000,
            decisions_kept: 4096,
            index_holders_max: 1024,
            index_blocks_max: 64 << 20,
            threads: 0,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            admin_listen: None,
            tls: None,
            tls_ca: None,
            id: String::new(),
            namespace: "default".to_owned(),
            models: Vec::new(),
            media_kwargs: BTreeMap::new(),
            cache_dir: None,
            keys: Vec::new(),
            tenancy: Tenancy::Shared,
            policy: "kv".to_owned(),
            secret: String::new(),
            index: IndexPlace::default(),
            media: MediaConfig::default(),
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Says what makes no sense together.
    ///
    /// # Errors
    /// One sentence for whoever wrote it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.tenancy == Tenancy::Shared || !self.keys.is_empty(),
            "tenancy isolated needs keys: without them all callers are one tenant"
        );
        anyhow::ensure!(self.keys.iter().all(|key| !key.key.is_empty()), "a key is empty");
        Ok(())
    }
}
