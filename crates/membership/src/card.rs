//! What a worker says of itself.

use identity::{Incarnation, ModelName, Rank, WorkerId};

/// A worker's entry in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The engine endpoint's name, unique in the namespace.
    pub worker: WorkerId,
    /// The agent that holds the card, by an opaque id; empty where it told none.
    pub agent: String,
    /// The model it serves.
    pub model: ModelName,
    /// Other names under which clients may ask for the model.
    pub aliases: Vec<ModelName>,
    /// `LoRA` adapters that are loaded, by the name clients use.
    pub adapters: Vec<String>,
    /// Base URL of the engine's HTTP surface, without a trailing slash.
    pub endpoint: String,
    /// Data-parallel ranks, ascending; at least one.
    pub ranks: Vec<RankFeed>,
    /// Oldest engine life whose state counts; zero until the agent knows one.
    pub incarnation: Incarnation,
    /// Tokens per block.
    pub block_size: u32,
    /// Key schemes the agent speaks, best first.
    pub schemes: Vec<String>,
    /// Fingerprint of the cluster's secret; zero for the empty one.
    pub secret_fingerprint: u64,
    /// Digests of the files that decide a prompt's tokens.
    pub artefacts: Artefacts,
    /// How the engine applies its chat template.
    pub template: TemplateOptions,
    /// What the engine is.
    pub engine: Engine,
    /// What the engine can take.
    pub limits: Limits,
    /// How fast it is believed to be before anything is measured.
    pub priors: Priors,
    /// How much it remembers of media.
    pub media_cache: MediaCache,
    /// Where its engine reads media as files; none where it doesn't.
    pub media_dir: Option<MediaDir>,
    /// How blocks become known.
    pub feed: Feed,
    /// Whether it takes requests.
    pub state: State,
    /// Versions of bus messages that the agent reads and writes.
    pub messages: MessageVersions,
}

/// One data-parallel rank and where its events come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFeed {
    /// The rank.
    pub rank: Rank,
    /// Endpoint of its events.
    pub events: Option<String>,
    /// Endpoint of their replay.
    pub replay: Option<String>,
}

/// Digests of what turns a request into tokens, as lowercase hex; empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Artefacts {
    /// Of `tokenizer.json`.
    pub tokenizer: String,
    /// Of the chat template.
    pub template: String,
    /// Of the model's and the processor's configuration.
    pub configs: String,
}

/// Options of the engine that decide a prompt's tokens beside the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateOptions {
    /// How message contents reach the template.
    pub content_format: ContentFormat,
    /// Template variables that the engine sets by default, as a JSON object; empty when none.
    pub default_kwargs: String,
    /// Media processor options of the engine, as a JSON object; empty when none.
    pub media_kwargs: String,
}

/// How message contents reach a chat template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentFormat {
    /// Decided from the template, as the engine does.
    #[default]
    Auto,
    /// One string.
    String,
    /// A list of parts.
    OpenAi,
}

/// The engine's kind and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// Such as `vllm`.
    pub kind: String,
    /// As the engine reports it; empty when unknown.
    pub version: String,
}

/// What an engine can take; zero stands for unlimited or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Longest context, in tokens.
    pub context_tokens_max: u32,
    /// Most media items in one request.
    pub media_items_max: u32,
    /// Most requests in flight per rank.
    pub in_flight_max: u32,
    /// Size of the KV cache per rank, in blocks.
    pub kv_blocks: u32,
}

/// What a rank remembers of media it has seen, whatever stood before them; zero where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCache {
    /// Items.
    pub items_max: u32,
    /// How long an item counts after it was last seen, in milliseconds.
    pub ttl_ms: u64,
}

/// Believed speeds of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priors {
    /// Prefill, in tokens per second.
    pub prefill_tokens_per_s: u32,
    /// Media encoder, in placeholder tokens per second.
    pub encode_tokens_per_s: u32,
    /// Fetching media, in bytes per second.
    pub fetch_bytes_per_s: u64,
    /// What each active sequence adds to the time of another, in microseconds.
    pub decode_us_per_active: u32,
}

impl Default for Priors {
    /// A mid-sized model on one accelerator; first-token times correct it within some requests.
    fn default() -> Self {
        Self {
            prefill_tokens_per_s: 10_000,
            encode_tokens_per_s: 5_000,
            fetch_bytes_per_s: 50_000_000,
            decode_us_per_active: 500,
        }
    }
}

/// A directory from which an engine reads media, and the way into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaDir {
    /// Base URL where the agent takes files, without a trailing slash.
    pub endpoint: String,
    /// The directory's absolute path on the engine's machine.
    pub path: String,
    /// What opens the endpoint.
    pub key: MediaDirKey,
}

/// The key to a media directory; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct MediaDirKey(String);

impl MediaDirKey {
    /// Wraps a key.
    #[must_use]
    pub const fn new(key: String) -> Self {
        Self(key)
    }

    /// Returns the key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for MediaDirKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MediaDirKey")
    }
}

/// How a worker's blocks become known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// By its own KV events.
    #[default]
    Events,
    /// By what the fleet dispatches to it; such blocks never count as exact.
    Dispatches {
        /// How long a dispatched block counts, in milliseconds.
        ttl_ms: u64,
        /// How many blocks count at most.
        blocks_max: u32,
    },
}

/// Whether a worker takes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not yet.
    #[default]
    Starting,
    /// Yes.
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
}

/// The versions of bus messages that a process speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageVersions {
    /// The oldest.
    pub from: u16,
    /// The newest.
    pub to: u16,
}

impl Default for MessageVersions {
    fn default() -> Self {
        Self { from: 1, to: 1 }
    }
}

impl Card {
    /// Makes a card with one rank, default limits and priors, in state `Starting`.
    #[must_use]
    pub fn new(worker: WorkerId, model: ModelName, endpoint: &str, block_size: u32) -> Self {
        Self {
            worker,
            agent: String::new(),
            model,
            aliases: Vec::new(),
            adapters: Vec::new(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            ranks: vec![RankFeed::default()],
            incarnation: Incarnation::default(),
            block_size,
            schemes: vec![identity::SCHEME.to_owned()],
            secret_fingerprint: 0,
            artefacts: Artefacts::default(),
            template: TemplateOptions::default(),
            engine: Engine::default(),
            limits: Limits::default(),
            priors: Priors::default(),
            media_cache: MediaCache::default(),
            media_dir: None,
            feed: Feed::default(),
            state: State::default(),
            messages: MessageVersions::default(),
        }
    }

    /// Tells whether clients reach this worker by a model name: the model, an alias, or an adapter.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.model.as_str() == name
            || self.aliases.iter().any(|alias| alias.as_str() == name)
            || self.adapters.iter().any(|adapter| adapter == name)
    }
}
