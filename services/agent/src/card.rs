//! From what is known of a worker to its card.

use identity::{Incarnation, ModelName, WorkerId};
use membership::Card;
use membership::card::{Artefacts, Engine, Limits, RankFeed, State};
use prompt::{Digests, ModelFiles};
use serde_json::Value;

use crate::config::Config;
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
        Self { artefacts, placeholders: placeholders(&files.config) }
    }
}

/// Lists the numbers that `config.json` gives for tokens that stand for media.
fn placeholders(config: &[u8]) -> Vec<u32> {
    const NAMES: [&str; 7] = [
        "image_token_id",
        "image_token_index",
        "media_placeholder_token_id",
        "video_token_id",
        "video_token_index",
        "audio_token_id",
        "audio_token_index",
    ];
    let config: Value = serde_json::from_slice(config).unwrap_or_default();
    let number = |name: &&str| config.get(name)?.as_u64().and_then(|id| u32::try_from(id).ok());
    let mut ids: Vec<u32> = NAMES.iter().filter_map(number).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
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
        engine: Engine { kind: "vllm".to_owned(), version: discovered.version.clone() },
        limits: Limits {
            context_tokens_max: discovered.context_tokens_max,
            media_items_max: config.media_items_max,
            in_flight_max: config.in_flight_max,
            kv_blocks: discovered.kv_blocks,
        },
        ..blank
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
    fn placeholders_are_the_non_negative_numbers() {
        let config =
            br#"{"image_token_id": 7, "image_token_index": -1, "video_token_id": 8, "audio_token_id": null}"#;
        assert_eq!(placeholders(config), [7, 8]);
        assert_eq!(placeholders(b"not json"), Vec::<u32>::new());
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
