//! Everything that an agent can be told.

use std::net::SocketAddr;
use std::path::PathBuf;

use adapter_http::TlsFiles;
use clap::{Args, ValueEnum};
use prompt::Kwargs;
use serde::{Deserialize, Serialize};

/// Configuration of one agent, which speaks for one engine.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base URL of the engine's HTTP server.
    #[arg(long, value_name = "URL", default_value_t = Self::default().engine)]
    pub engine: String,
    /// ZMQ endpoint of rank 0's events; later ranks have the ports after it. Asked of the engine by default, which
    /// vLLM tells from release 0.31 on.
    #[arg(long, value_name = "ENDPOINT")]
    pub kv_events: Option<String>,
    /// Bind the event endpoint: the engine connects, as vLLM does to an endpoint without a wildcard.
    #[arg(long, default_value_t = false)]
    pub kv_events_bind: bool,
    /// ZMQ endpoint of rank 0's replays; none for no replays.
    #[arg(long, value_name = "ENDPOINT")]
    pub kv_replay: Option<String>,
    /// Prefix of the event topics to receive; empty for all.
    #[arg(long, default_value_t = Self::default().kv_topic)]
    pub kv_topic: String,
    /// Number of data-parallel ranks behind the engine, where it does not tell.
    #[arg(long, default_value_t = Self::default().data_parallel_size)]
    pub data_parallel_size: u16,
    /// Name under which clients ask for the model; the engine's first by default.
    #[arg(long)]
    pub model: Option<String>,
    /// Directory with the model's tokenizer, chat template and configurations; none leaves digests out of the card.
    #[arg(long)]
    pub model_dir: Option<PathBuf>,
    /// How the engine was told to process media, as its own `--mm-processor-kwargs`: it changes what images become.
    #[arg(long, value_name = "JSON")]
    pub mm_processor_kwargs: Option<Kwargs>,
    /// Template variables that the engine sets by default, as its own `--default-chat-template-kwargs`.
    #[arg(long, value_name = "JSON")]
    pub default_chat_template_kwargs: Option<Kwargs>,
    /// How message contents reach the engine's chat template, as its own `--chat-template-content-format`.
    #[arg(long, value_enum, default_value_t = Self::default().chat_template_content_format)]
    pub chat_template_content_format: ContentFormat,
    /// Name of the worker, unique in the namespace; host and port of the engine by default.
    #[arg(long)]
    pub id: Option<String>,
    /// Directory for checkpoints; none keeps them in memory.
    #[arg(long)]
    pub state_dir: Option<PathBuf>,
    /// Directory, best in memory, into which frontends put media that the engine is to read as files: the same path, or
    /// one above it, is the engine's --allowed-local-media-path. It is this agent's alone; none takes no files.
    #[arg(long, value_name = "DIR")]
    pub media_dir: Option<PathBuf>,
    /// Bytes of files in the media directory.
    #[arg(long, default_value_t = Self::default().media_dir_bytes_max)]
    pub media_dir_bytes_max: u64,
    /// Bytes of one file in the media directory.
    #[arg(long, default_value_t = Self::default().media_file_bytes_max)]
    pub media_file_bytes_max: u64,
    /// Where frontends bring those files; port 0 takes a free one.
    #[arg(long, default_value_t = Self::default().media_listen)]
    pub media_listen: SocketAddr,
    /// How frontends reach that listener, as HOST:PORT; by default the address it is bound to.
    #[arg(long, value_name = "HOST:PORT")]
    pub media_advertise: Option<String>,
    /// Where health, metrics and progress are shown; port 0 takes a free one.
    #[arg(long, default_value_t = Self::default().listen)]
    pub listen: SocketAddr,
    /// Namespace of workers and subjects; the cluster's.
    #[arg(skip)]
    #[serde(skip)]
    pub namespace: String,
    /// The cluster's secret, mixed into block keys.
    #[arg(skip)]
    #[serde(skip)]
    pub secret: String,
    /// Certificate and key of the listener; none speaks plain HTTP.
    #[arg(skip)]
    #[serde(skip)]
    pub tls: Option<TlsFiles>,
    /// Tokens of a KV block, where the engine's metrics do not tell.
    #[arg(long)]
    pub block_size: Option<u32>,
    /// KV blocks of a rank that are followed at most.
    #[arg(long, default_value_t = Self::default().blocks_max)]
    pub blocks_max: u32,
    /// Requests that the engine takes at once per rank; 0 for no bound.
    #[arg(long, default_value_t = Self::default().in_flight_max)]
    pub in_flight_max: u32,
    /// Media items that the engine takes in one request; 0 for no bound.
    #[arg(long, default_value_t = Self::default().media_items_max)]
    pub media_items_max: u32,
    /// Media items that the engine's processor cache holds, whatever stood before them; 0 where it is not known.
    #[arg(long, default_value_t = Self::default().media_cache_items)]
    pub media_cache_items: u32,
    /// Time for which the engine still has a media item after it was last seen, in seconds; 0 where it is not known.
    #[arg(long, default_value_t = Self::default().media_ttl_s)]
    pub media_ttl_s: u32,
    /// Longest time that the engine's requests may take to finish once the agent is asked to stop, in milliseconds.
    #[arg(long, default_value_t = Self::default().drain_ms)]
    pub drain_ms: u64,
}

/// How message contents reach a chat template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentFormat {
    /// Decided from the template.
    #[default]
    Auto,
    /// One string.
    String,
    /// A list of parts.
    #[value(name = "openai")]
    OpenAi,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: "http://127.0.0.1:8000".to_owned(),
            kv_events: None,
            kv_events_bind: false,
            kv_replay: None,
            kv_topic: String::new(),
            data_parallel_size: 1,
            model: None,
            model_dir: None,
            mm_processor_kwargs: None,
            default_chat_template_kwargs: None,
            chat_template_content_format: ContentFormat::Auto,
            id: None,
            state_dir: None,
            media_dir: None,
            media_dir_bytes_max: 1 << 30,
            media_file_bytes_max: 64 << 20,
            media_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            media_advertise: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            namespace: "default".to_owned(),
            secret: String::new(),
            tls: None,
            block_size: None,
            blocks_max: 8 << 20,
            in_flight_max: 0,
            media_items_max: 0,
            media_cache_items: 0,
            media_ttl_s: 0,
            drain_ms: 30_000,
        }
    }
}
