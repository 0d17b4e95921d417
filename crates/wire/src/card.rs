//! Cards as JSON, readable in the registry's own tools.
//!
//! Fields that a release does not know are ignored; those that it misses take the defaults of `membership::card`. 64-bit
//! numbers without a meaning of their own are hexadecimal strings, as JSON readers round large numbers.

use bytes::Bytes;
use identity::{Incarnation, ModelName, Rank, WorkerId};
use membership::Card;
use membership::card::{
    Artefacts, ContentFormat, Engine, Feed, Limits, MediaCache, MediaDir, MediaDirKey, MessageVersions,
    Priors, RankFeed, State, TemplateOptions,
};
use serde::{Deserialize, Serialize};

use crate::codec::Error;

/// Encodes a card.
///
/// # Errors
/// None in practice.
pub fn encode(card: &Card) -> Result<Bytes, Error> {
    serde_json::to_vec(&CardForm::from(card)).map(Bytes::from).map_err(Error::Card)
}

/// Decodes a card.
///
/// # Errors
/// The entry is ignored and reported: something else writes under the prefix.
pub fn decode(json: &[u8]) -> Result<Card, Error> {
    serde_json::from_slice::<CardForm>(json).map_err(Error::Card)?.check()
}

#[derive(Serialize, Deserialize)]
struct CardForm {
    worker: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    agent: String,
    model: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    adapters: Vec<String>,
    endpoint: String,
    #[serde(default)]
    ranks: Vec<RankForm>,
    #[serde(default)]
    incarnation: IncarnationForm,
    block_size: u32,
    #[serde(default)]
    schemes: Vec<String>,
    #[serde(default)]
    secret_fingerprint: Hex,
    #[serde(default)]
    artefacts: ArtefactsForm,
    #[serde(default)]
    template: TemplateForm,
    #[serde(default)]
    engine: EngineForm,
    #[serde(default)]
    limits: LimitsForm,
    #[serde(default)]
    priors: PriorsForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_dir: Option<MediaDirForm>,
    #[serde(default)]
    media_cache: MediaCacheForm,
    #[serde(default)]
    feed: FeedForm,
    #[serde(default)]
    state: StateForm,
    #[serde(default)]
    messages: MessagesForm,
}

/// A u64 as 16 hexadecimal digits.
#[derive(Clone, Copy, Default)]
struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct RankForm {
    rank: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replay: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct IncarnationForm {
    started_ms: u64,
    nonce: Hex,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ArtefactsForm {
    tokenizer: String,
    template: String,
    configs: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct TemplateForm {
    content_format: FormatForm,
    default_kwargs: String,
    media_kwargs: String,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormatForm {
    #[default]
    Auto,
    String,
    OpenAi,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct EngineForm {
    kind: String,
    version: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct LimitsForm {
    context_tokens_max: u32,
    media_items_max: u32,
    in_flight_max: u32,
    kv_blocks: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct PriorsForm {
    prefill_tokens_per_s: u32,
    encode_tokens_per_s: u32,
    fetch_bytes_per_s: u64,
    decode_us_per_active: u32,
}

#[derive(Serialize, Deserialize)]
struct MediaDirForm {
    endpoint: String,
    path: String,
    key: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct MediaCacheForm {
    items_max: u32,
    ttl_ms: u64,
}

impl From<MediaCache> for MediaCacheForm {
    fn from(cache: MediaCache) -> Self {
        Self { items_max: cache.items_max, ttl_ms: cache.ttl_ms }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FeedForm {
    #[default]
    Events,
    Dispatches {
        ttl_ms: u64,
        blocks_max: u32,
    },
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateForm {
    #[default]
    Starting,
    Ready,
    Draining,
}

#[derive(Serialize, Deserialize)]
struct MessagesForm {
    from: u16,
    to: u16,
}

impl Default for PriorsForm {
    fn default() -> Self {
        Priors::default().into()
    }
}

impl From<Priors> for PriorsForm {
    fn from(priors: Priors) -> Self {
        Self {
            prefill_tokens_per_s: priors.prefill_tokens_per_s,
            encode_tokens_per_s: priors.encode_tokens_per_s,
            fetch_bytes_per_s: priors.fetch_bytes_per_s,
            decode_us_per_active: priors.decode_us_per_active,
        }
    }
}

impl Default for MessagesForm {
    fn default() -> Self {
        let MessageVersions { from, to } = MessageVersions::default();
        Self { from, to }
    }
}

impl From<&Card> for CardForm {
    fn from(card: &Card) -> Self {
        let names = |names: &[ModelName]| names.iter().map(|name| name.as_str().to_owned()).collect();
        let ranks = card.ranks.iter().cloned();
        Self {
            worker: card.worker.as_str().to_owned(),
            agent: card.agent.clone(),
            model: card.model.as_str().to_owned(),
            aliases: names(&card.aliases),
            adapters: card.adapters.clone(),
            endpoint: card.endpoint.clone(),
            ranks: ranks.map(|r| RankForm { rank: r.rank.0, events: r.events, replay: r.replay }).collect(),
            incarnation: IncarnationForm {
                started_ms: card.incarnation.started_ms,
                nonce: Hex(card.incarnation.nonce),
            },
            block_size: card.block_size,
            schemes: card.schemes.clone(),
            secret_fingerprint: Hex(card.secret_fingerprint),
            artefacts: ArtefactsForm {
                tokenizer: card.artefacts.tokenizer.clone(),
                template: card.artefacts.template.clone(),
                configs: card.artefacts.configs.clone(),
            },
            template: template_form(&card.template),
            engine: EngineForm { kind: card.engine.kind.clone(), version: card.engine.version.clone() },
            limits: LimitsForm {
                context_tokens_max: card.limits.context_tokens_max,
                media_items_max: card.limits.media_items_max,
                in_flight_max: card.limits.in_flight_max,
                kv_blocks: card.limits.kv_blocks,
            },
            priors: card.priors.into(),
            media_cache: card.media_cache.into(),
            media_dir: card.media_dir.as_ref().map(|dir| MediaDirForm {
                endpoint: dir.endpoint.clone(),
                path: dir.path.clone(),
                key: dir.key.as_str().to_owned(),
            }),
            feed: match card.feed {
                Feed::Events => FeedForm::Events,
                Feed::Dispatches { ttl_ms, blocks_max } => FeedForm::Dispatches { ttl_ms, blocks_max },
            },
            state: match card.state {
                State::Starting => StateForm::Starting,
                State::Ready => StateForm::Ready,
                State::Draining => StateForm::Draining,
            },
            messages: MessagesForm { from: card.messages.from, to: card.messages.to },
        }
    }
}

fn template_form(template: &TemplateOptions) -> TemplateForm {
    TemplateForm {
        content_format: match template.content_format {
            ContentFormat::Auto => FormatForm::Auto,
            ContentFormat::String => FormatForm::String,
            ContentFormat::OpenAi => FormatForm::OpenAi,
        },
        default_kwargs: template.default_kwargs.clone(),
        media_kwargs: template.media_kwargs.clone(),
    }
}

impl CardForm {
    fn check(self) -> Result<Card, Error> {
        let invalid = |field| Err(Error::Invalid { field });
        if self.worker.is_empty() || self.model.is_empty() {
            return invalid("name");
        }
        if self.block_size == 0 {
            return invalid("block_size");
        }
        let ranks = self.ranks.into_iter();
        let mut ranks: Vec<RankFeed> = ranks
            .map(|form| RankFeed { rank: Rank(form.rank), events: form.events, replay: form.replay })
            .collect();
        ranks.sort_by_key(|feed| feed.rank);
        ranks.dedup_by_key(|feed| feed.rank);
        if ranks.is_empty() {
            ranks.push(RankFeed::default());
        }
        let mut card = Card::new(
            WorkerId::new(&self.worker),
            ModelName::new(&self.model),
            &self.endpoint,
            self.block_size,
        );
        if !self.schemes.is_empty() {
            card.schemes = self.schemes;
        }
        card.agent = self.agent;
        card.aliases = self.aliases.iter().map(|name| ModelName::new(name)).collect();
        card.adapters = self.adapters;
        card.ranks = ranks;
        card.incarnation =
            Incarnation { started_ms: self.incarnation.started_ms, nonce: self.incarnation.nonce.0 };
        card.secret_fingerprint = self.secret_fingerprint.0;
        card.artefacts = Artefacts {
            tokenizer: self.artefacts.tokenizer,
            template: self.artefacts.template,
            configs: self.artefacts.configs,
        };
        card.template = self.template.into();
        card.engine = Engine { kind: self.engine.kind, version: self.engine.version };
        card.limits = self.limits.into();
        card.priors = self.priors.into();
        card.media_cache =
            MediaCache { items_max: self.media_cache.items_max, ttl_ms: self.media_cache.ttl_ms };
        card.media_dir = self.media_dir.map(|form| MediaDir {
            endpoint: form.endpoint,
            path: form.path,
            key: MediaDirKey::new(form.key),
        });
        card.feed = match self.feed {
            FeedForm::Events => Feed::Events,
            FeedForm::Dispatches { ttl_ms, blocks_max } => Feed::Dispatches { ttl_ms, blocks_max },
        };
        card.state = match self.state {
            StateForm::Starting => State::Starting,
            StateForm::Ready => State::Ready,
            StateForm::Draining => State::Draining,
        };
        card.messages = MessageVersions { from: self.messages.from, to: self.messages.to };
        Ok(card)
    }
}

impl From<TemplateForm> for TemplateOptions {
    fn from(form: TemplateForm) -> Self {
        Self {
            content_format: match form.content_format {
                FormatForm::Auto => ContentFormat::Auto,
                FormatForm::String => ContentFormat::String,
                FormatForm::OpenAi => ContentFormat::OpenAi,
            },
            default_kwargs: form.default_kwargs,
            media_kwargs: form.media_kwargs,
        }
    }
}

impl From<LimitsForm> for Limits {
    fn from(form: LimitsForm) -> Self {
        Self {
            context_tokens_max: form.context_tokens_max,
            media_items_max: form.media_items_max,
            in_flight_max: form.in_flight_max,
            kv_blocks: form.kv_blocks,
        }
    }
}

impl From<PriorsForm> for Priors {
    fn from(form: PriorsForm) -> Self {
        Self {
            prefill_tokens_per_s: form.prefill_tokens_per_s,
            encode_tokens_per_s: form.encode_tokens_per_s,
            fetch_bytes_per_s: form.fetch_bytes_per_s,
            decode_us_per_active: form.decode_us_per_active,
        }
    }
}
