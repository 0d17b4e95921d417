//! What `sightline up` can be told.

use std::path::PathBuf;

use clap::Args;
use frontend::{HandOverConfig, MediaMode};
use prompt::Kwargs;
use serde::{Deserialize, Serialize};

use crate::up::engine_spec::EngineSpec;

/// Configuration of `sightline up`.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of frontends, on consecutive ports.
    #[arg(long, value_name = "N", default_value_t = Self::default().frontends)]
    pub frontends: u16,
    /// Number of simulated engines; unused where engines are attached.
    #[arg(long, value_name = "N", default_value_t = Self::default().workers)]
    pub workers: u16,
    /// Port of the first frontend.
    #[arg(long, value_name = "PORT", default_value_t = Self::default().port)]
    pub port: u16,
    /// Name under which the model is served; by default the directory's name.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Directory with the model's tokenizer, chat template and configurations.
    #[arg(long, value_name = "DIR", default_value_os_t = Self::default().model_dir)]
    pub model_dir: PathBuf,
    /// How the engines process images, as vLLM's `--mm-processor-kwargs`: simulated ones are started so, attached ones
    /// must have been.
    #[arg(long, value_name = "JSON")]
    pub mm_processor_kwargs: Option<Kwargs>,
    /// Tokens of a KV block.
    #[arg(long, value_name = "N", default_value_t = Self::default().block_size)]
    pub block_size: u32,
    /// KV blocks of each simulated engine.
    #[arg(long, value_name = "N", default_value_t = Self::default().kv_blocks)]
    pub kv_blocks: u32,
    /// Simulated seconds that pass in a real one; 0 for no simulated time at all.
    #[arg(long, value_name = "FACTOR", default_value_t = Self::default().speed)]
    pub speed: f64,
    /// Network, as a CIDR, from which images are fetched although it is not public; repeatable,
    /// or split by commas.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub media_allow_net: Vec<String>,
    /// How engines are handed fetched images: data, url or file.
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Self::default().media_hand_over)]
    pub media_hand_over: HandOverConfig,
    /// Decode fetched images in the frontend, once, and hand them over as bitmaps.
    #[arg(long, default_value_t = false)]
    pub media_decode: bool,
    /// Directory, best in memory, for images that are handed over as files; attached engines need it as their
    /// --allowed-local-media-path.
    #[arg(long, value_name = "DIR")]
    pub media_dir: Option<PathBuf>,
    /// What is done about images behind URLs: fetch (they are handed over) or passthrough (the engine fetches them).
    #[arg(long, value_enum, default_value_t = Self::default().media_mode)]
    pub media_mode: MediaMode,
    /// What is done about images of a host instead: fetch, probe or never; repeatable, or split by commas.
    #[arg(long, value_name = "HOST=TREATMENT", value_delimiter = ',')]
    pub media_host: Vec<String>,
    /// URL pattern of images that never change; repeatable, or split by spaces.
    #[arg(long, value_name = "PATTERN", value_delimiter = ' ')]
    pub media_immutable_url: Vec<String>,
    /// How long a request waits for what is known of its images before it is placed without, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = Self::default().media_budget_ms)]
    pub media_budget_ms: u64,
    /// A real engine to attach instead of simulated ones: URL,kv-events=ENDPOINT and, where they apply,
    /// ,replay=ENDPOINT and ,bind; repeatable,
    /// or split by spaces.
    #[arg(long, value_name = "SPEC", value_delimiter = ' ')]
    pub engine: Vec<EngineSpec>,
    /// Run each simulated engine as a process of its own, and start it again when it ends.
    #[arg(long, default_value_t = false)]
    pub engines_as_processes: bool,
    /// Port of the first simulated engine.
    #[arg(long, value_name = "PORT", default_value_t = Self::default().engine_port)]
    pub engine_port: u16,
    /// Port of the first simulated engine's events.
    #[arg(long, value_name = "PORT", default_value_t = Self::default().event_port)]
    pub event_port: u16,
    /// Port of the first simulated engine's replays.
    #[arg(long, value_name = "PORT", default_value_t = Self::default().replay_port)]
    pub replay_port: u16,
    /// Port on which the agents show their health, metrics and progress; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = Self::default().agent_port)]
    pub agent_port: u16,
    /// Bearer keys of the frontends; none lets everybody in.
    #[arg(skip)]
    pub keys: Vec<frontend::KeyConfig>,
    /// Whether tenants share what engines have cached: shared or isolated. Isolated needs keys.
    #[arg(long, value_enum, default_value_t = Self::default().tenancy)]
    pub tenancy: frontend::Tenancy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            frontends: 2,
            workers: 3,
            port: 8000,
            model: None,
            model_dir: PathBuf::from("fixtures/models/tiny-vl"),
            mm_processor_kwargs: None,
            block_size: 16,
            kv_blocks: 2048,
            speed: 1.0,
            media_allow_net: Vec::new(),
            media_hand_over: HandOverConfig::default(),
            media_decode: false,
            media_dir: None,
            media_mode: MediaMode::Fetch,
            media_host: Vec::new(),
            media_immutable_url: Vec::new(),
            media_budget_ms: frontend::MediaConfig::default().budget_ms,
            engine: Vec::new(),
            engines_as_processes: false,
            engine_port: 8100,
            event_port: 5600,
            replay_port: 5700,
            agent_port: 8090,
            keys: Vec::new(),
            tenancy: frontend::Tenancy::Shared,
        }
    }
}

impl Config {
    /// Returns the name under which the model is served.
    #[must_use]
    pub fn model_name(&self) -> String {
        let directory = self.model_dir.file_name().map(|name| name.to_string_lossy().into_owned());
        self.model.clone().or(directory).unwrap_or_else(|| "model".to_owned())
    }
}
