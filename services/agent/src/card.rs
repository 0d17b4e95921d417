//! From what is known of a worker to its card.

use identity::{Incarnation, ModelName, WorkerId};
use membership::Card;
use membership::card::{Artefacts, Engine, Limits, MediaCache, RankFeed, State, TemplateOptions};
use prompt::{Digests, Kwargs, ModelFiles};

use crate::config::{Config, ContentFormat};
use crate::discovery::Discovered;

/// What a model directory contributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) artefacts: Artefacts,
    /// Tokens that stand for media.
    pub(crate) placeholders: Vec<u32>,
}

impl Model {
    pub(crate) fn of(files: &ModelFiles) -> Self {
        let Digests { tokenizer, template, configs } = files.digests();
        let artefacts = Artefacts { tokenizer, template, configs };
        Self { artefacts, placeholders: prompt::placeholder_tokens(files) }
    }
}

/// Fingerprints the cluster's secret, so that workers with another one are seen to be apart; zero for none.
pub(crate) fn secret_fingerprint(secret: &str) -> u64 {
    if secret.is_empty() {
        return 0;
    }
    let digest = blake3::derive_key("sightline secret fingerprint v1", secret.as_bytes());
    digest.first_chunk().copied().map_or(1, u64::from_le_bytes).max(1)
}

/// Writes the card of a worker that has not begun.
pub(crate) fn card(worker: WorkerId, endpoint: &str, config: &Config, found: (&Discovered, &Model)) -> Card {
    let (discovered, model) = found;
    let blank = Card::new(worker, ModelName::new(&discovered.model), endpoint, discovered.block_size);
    let feed = |source: &crate::discovery::RankSource| RankFeed {
        rank: source.rank,
        events: Some(source.events.endpoint().to_owned()),
        replay: source.replay.clone(),
    };
    Card {
        aliases: discovered.aliases.iter().map(|name| ModelName::new(name)).collect(),
        adapters: discovered.adapters.clone(),
        ranks: discovered.ranks.iter().map(feed).collect(),
        secret_fingerprint: secret_fingerprint(&config.secret),
        artefacts: model.artefacts.clone(),
        template: template(config),
        engine: Engine { kind: "vllm".to_owned(), version: discovered.version.clone() },
        limits: Limits {
            context_tokens_max: discovered.context_tokens_max,
            media_items_max: config.media_items_max,
            in_flight_max: config.in_flight_max,
            kv_blocks: discovered.kv_blocks,
        },
        media_cache: MediaCache {
            items_max: config.media_cache_items,
            ttl_ms: u64::from(config.media_ttl_s) * 1000,
        },
        ..blank
    }
}

/// Writes down the options that the engine was started with.
fn template(config: &Config) -> TemplateOptions {
    let text = |kwargs: &Option<Kwargs>| kwargs.as_ref().map_or_else(String::new, Kwargs::to_text);
    TemplateOptions {
        content_format: match config.chat_template_content_format {
            ContentFormat::Auto => membership::card::ContentFormat::Auto,
            ContentFormat::String => membership::card::ContentFormat::String,
            ContentFormat::OpenAi => membership::card::ContentFormat::OpenAi,
        },
        default_kwargs: text(&config.default_chat_template_kwargs),
        media_kwargs: text(&config.mm_processor_kwargs),
    }
}

/// Brings a card up to date.
pub(crate) fn current(card: &Card, incarnation: Option<Incarnation>, state: State) -> Card {
    Card { incarnation: incarnation.unwrap_or_default(), state, ..card.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_engine_are_on_the_card() {
        let kwargs = |text: &str| text.parse().ok();
        let config = Config {
            mm_processor_kwargs: kwargs(r#"{"max_pixels": 9, "do_x": true}"#),
            default_chat_template_kwargs: kwargs("{}"),
            chat_template_content_format: ContentFormat::OpenAi,
            ..Config::default()
        };
        let options = template(&config);
        assert_eq!(options.media_kwargs, r#"{"do_x":true,"max_pixels":9}"#);
        assert_eq!(options.default_kwargs, "");
        assert_eq!(options.content_format, membership::card::ContentFormat::OpenAi);
        assert_eq!(template(&Config::default()), TemplateOptions::default());
    }

    #[test]
    fn artefacts_differ_where_their_files_do() {
        let files = ModelFiles { tokenizer: b"t".to_vec(), config: b"{}".to_vec(), ..ModelFiles::default() };
        let other = ModelFiles { chat_template_jinja: Some(b"{{ x }}".to_vec()), ..files.clone() };
        let (one, two) = (Model::of(&files).artefacts, Model::of(&other).artefacts);
        assert_eq!((&one.tokenizer, &one.configs), (&two.tokenizer, &two.configs));
        assert_ne!(one.template, two.template);
    }

    #[test]
    fn secrets_have_fingerprints() {
        assert_eq!(secret_fingerprint(""), 0);
        assert_ne!(secret_fingerprint("a"), secret_fingerprint("b"));
    }
}
