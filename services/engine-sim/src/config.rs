//! Everything that can be set.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use prompt::Kwargs;
use serde::{Deserialize, Serialize};

use crate::event_codec::{EventFormat, HashForm};

/// Configuration of one simulated engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the HTTP server; port 0 takes a free one.
    #[arg(long, default_value_t = Self::default().listen)]
    pub listen: SocketAddr,
    /// Name under which the model is served; by default the directory's name.
    #[arg(long)]
    pub model: Option<String>,
    /// Directory with the model's tokenizer, chat template and configurations; also `root` of `/v1/models`.
    #[arg(long, default_value_os_t = Self::default().model_dir)]
    pub model_dir: PathBuf,
    /// How images are processed, as vLLM's `--mm-processor-kwargs`.
    #[arg(long, value_name = "JSON")]
    pub mm_processor_kwargs: Option<Kwargs>,
    /// Tokens of a KV block.
    #[arg(long, default_value_t = Self::default().block_size)]
    pub block_size: u32,
    /// KV blocks of each rank, of which one is reserved as in vLLM.
    #[arg(long, default_value_t = Self::default().kv_blocks)]
    pub kv_blocks: u32,
    /// Simulated seconds that pass in a real one; 0 for no simulated time at all.
    #[arg(long, default_value_t = Self::default().speed)]
    pub speed: f64,
    /// ZMQ endpoint of the event publisher, e.g. `tcp://*:5557`; none for no events.
    #[arg(long)]
    pub kv_events: Option<String>,
    /// Bind the event publisher although vLLM would connect to this endpoint.
    #[arg(long, default_value_t = false)]
    pub kv_events_bind: bool,
    /// ZMQ endpoint for replays, always bound; none for no replays.
    #[arg(long)]
    pub kv_replay: Option<String>,
    /// Topic of event messages.
    #[arg(long, default_value_t = Self::default().kv_topic)]
    pub kv_topic: String,
    /// Layout of events and replays.
    #[arg(long, value_enum, default_value_t = EventFormat::Map)]
    pub event_format: EventFormat,
    /// Form of block hashes in events.
    #[arg(long, value_enum, default_value_t = HashForm::Int)]
    pub event_hashes: HashForm,
    /// Number of data-parallel ranks, each with its own blocks and, at the following ports, its own event endpoints.
    #[arg(long, default_value_t = Self::default().data_parallel_size)]
    pub data_parallel_size: u32,
    /// Longest prompt and reply together in tokens; by default the model's, and never more than the blocks hold.
    #[arg(long)]
    pub max_model_len: Option<u32>,
    /// Sequences that a rank computes together.
    #[arg(long, default_value_t = Self::default().max_num_seqs)]
    pub max_num_seqs: u32,
    /// Tokens that a rank computes in one step; longer prompts are split.
    #[arg(long, default_value_t = Self::default().max_num_batched_tokens)]
    pub max_num_batched_tokens: u32,
    /// Sequences that wait in a rank; about a thousand more wait before it, and the next is refused with 503.
    #[arg(long, default_value_t = Self::default().max_num_waiting)]
    pub max_num_waiting: usize,
    /// Prompt tokens computed in a simulated second.
    #[arg(long, default_value_t = Self::default().prefill_tokens_per_second)]
    pub prefill_tokens_per_second: f64,
    /// Image tokens encoded in a simulated second.
    #[arg(long, default_value_t = Self::default().encode_tokens_per_second)]
    pub encode_tokens_per_second: f64,
    /// Simulated duration of a decode step in milliseconds.
    #[arg(long, default_value_t = Self::default().decode_step_ms)]
    pub decode_step_ms: f64,
    /// Tokens after which a reply ends by itself; 0 for never.
    #[arg(long, default_value_t = Self::default().reply_tokens)]
    pub reply_tokens: u32,
    /// Whether `usage` carries `prompt_tokens_details`.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub prompt_tokens_details: bool,
    /// Images in one request.
    #[arg(long, default_value_t = Self::default().images_max)]
    pub images_max: usize,
    /// Bytes of one image.
    #[arg(long, default_value_t = Self::default().image_bytes_max)]
    pub image_bytes_max: u64,
    /// Time for fetching one image, in milliseconds.
    #[arg(long, default_value_t = Self::default().image_fetch_timeout_ms)]
    pub image_fetch_timeout_ms: u64,
    /// Directory below which images are read by file URLs; none refuses such URLs.
    #[arg(long, value_name = "DIR")]
    pub allowed_local_media_path: Option<PathBuf>,
    /// Hosts from which images are fetched; none allows all. Repeatable, or split by commas.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub allowed_media_domains: Vec<String>,
    /// Last media items of which `/engine_sim/media` tells what was received; 0 for none.
    #[arg(long, default_value_t = Self::default().media_recorded_max)]
    pub media_recorded_max: usize,
    /// Images whose preprocessing is remembered by identity.
    #[arg(long, default_value_t = Self::default().mm_cache_items)]
    pub mm_cache_items: usize,
    /// Image tokens whose encoder output is kept.
    #[arg(long, default_value_t = Self::default().encoder_cache_tokens)]
    pub encoder_cache_tokens: u32,
    /// Bytes of a request body.
    #[arg(long, default_value_t = Self::default().body_bytes_max)]
    pub body_bytes_max: usize,
    /// HTTP connections at a time.
    #[arg(long, default_value_t = Self::default().connections_max)]
    pub connections_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8100)),
            model: None,
            model_dir: PathBuf::from("fixtures/models/tiny-vl"),
            mm_processor_kwargs: None,
            block_size: 16,
            kv_blocks: 2048,
            speed: 1.0,
            kv_events: None,
            kv_events_bind: false,
            kv_replay: None,
            kv_topic: "kv-events".to_owned(),
            event_format: EventFormat::Map,
            event_hashes: HashForm::Int,
            data_parallel_size: 1,
            max_model_len: None,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_num_waiting: 8192,
            prefill_tokens_per_second: 8000.0,
            encode_tokens_per_second: 4000.0,
            decode_step_ms: 10.0,
            reply_tokens: 256,
            prompt_tokens_details: true,
            images_max: 64,
            image_bytes_max: 64 << 20,
            image_fetch_timeout_ms: 5000,
            allowed_local_media_path: None,
            allowed_media_domains: Vec::new(),
            media_recorded_max: 0,
            mm_cache_items: 4096,
            encoder_cache_tokens: 32_768,
            body_bytes_max: 128 << 20,
            connections_max: 4096,
        }
    }
}

impl Config {
    /// Returns the name under which the model is served.
    #[must_use]
    pub fn model_name(&self) -> String {
        let directory = || self.model_dir.file_name().map(|name| name.to_string_lossy().into_owned());
        self.model.clone().or_else(directory).unwrap_or_else(|| "model".to_owned())
    }

    /// Checks what types cannot say.
    ///
    /// # Errors
    /// Names the first setting that makes no sense.
    pub fn check(&self) -> Result<(), Invalid> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rules = [
            (self.block_size > 0, "block-size", "must be at least 1"),
            (self.kv_blocks > 1, "kv-blocks", "must be at least 2"),
            (
                u64::from(self.kv_blocks) * u64::from(self.block_size) <= 1 << 30,
                "kv-blocks",
                "must hold at most 2^30 tokens",
            ),
            (self.speed.is_finite() && self.speed >= 0.0, "speed", "must be a number from 0"),
            (positive(self.prefill_tokens_per_second), "prefill-tokens-per-second", "must be above 0"),
            (positive(self.encode_tokens_per_second), "encode-tokens-per-second", "must be above 0"),
            (
                self.decode_step_ms.is_finite() && self.decode_step_ms >= 0.0,
                "decode-step-ms",
                "must be a number from 0",
            ),
            (self.data_parallel_size > 0, "data-parallel-size", "must be at least 1"),
            (self.max_num_seqs > 0, "max-num-seqs", "must be at least 1"),
            (self.max_num_batched_tokens > 0, "max-num-batched-tokens", "must be at least 1"),
            (self.max_num_waiting > 0, "max-num-waiting", "must be at least 1"),
            (self.max_model_len != Some(0), "max-model-len", "must be at least 1"),
            (self.connections_max > 0, "connections-max", "must be at least 1"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, setting, rule)) => Err(Invalid { setting, rule }),
            None => Ok(()),
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {rule}")]
pub struct Invalid {
    /// Name of the flag.
    pub setting: &'static str,
    /// What it must be.
    pub rule: &'static str,
}
