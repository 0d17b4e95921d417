//! What is asked of an index, and the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actors::{Fleet, IndexView};
use block_index::Matches;
use identity::{BlockKey, KeyScope, MediaId, MediaSpan, ModelName, block_keys};
use membership::replica::Phase;
use serde::{Deserialize, Serialize};

use crate::desks::Desks;

/// One question: who has how much of this prompt?
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    model: String,
    #[serde(default)]
    lora_name: Option<String>,
    #[serde(default)]
    cache_salt: String,
    token_ids: Option<Vec<u32>>,
    keys: Option<Vec<u64>>,
    #[serde(default)]
    media: Vec<Media>,
}

/// Where a media item stands in the prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Media {
    media_id: String,
    offset: u32,
    length: u32,
}

/// What one worker has of a prompt.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Matched {
    matched_tokens: u64,
    ranks: BTreeMap<u16, u64>,
}

/// Why a question has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It makes no sense.
    #[error("{0}")]
    Malformed(String),
    /// Nobody serves the model.
    #[error("the model `{0}` does not exist")]
    UnknownModel(String),
}

impl Refused {
    /// Returns the HTTP status for it.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::UnknownModel(_) => 404,
        }
    }

    /// Spells it in OpenAI's shape.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let (kind, code) = match self {
            Self::Malformed(_) => ("invalid_request_error", "invalid_value"),
            Self::UnknownModel(_) => ("not_found_error", "model_not_found"),
        };
        let message = self.to_string();
        let error = serde_json::json!({"message": message, "type": kind, "param": null, "code": code});
        serde_json::json!({ "error": error }).to_string().into_bytes()
    }
}

/// Answers questions; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queries {
    desks: Desks,
    secret: Arc<str>,
    answered: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    lookups: Arc<AtomicU64>,
}

impl Queries {
    pub(crate) fn new(desks: Desks, secret: &str) -> Self {
        Self {
            desks,
            secret: Arc::from(secret),
            answered: Arc::default(),
            refused: Arc::default(),
            lookups: Arc::default(),
        }
    }

    /// Answers a JSON question in JSON.
    ///
    /// # Errors
    /// Tell the asker.
    pub fn answer(&self, question: &[u8]) -> Result<Vec<u8>, Refused> {
        let answer = self.matched(question);
        let counter = if answer.is_ok() { &self.answered } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        serde_json::to_vec(&answer?).map_err(|cause| Refused::Malformed(cause.to_string()))
    }

    /// Counts questions answered and refused so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Returns the count of frontends' lookups answered so far.
    pub(crate) fn lookups(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lookups)
    }

    fn matched(&self, question: &[u8]) -> Result<BTreeMap<String, Matched>, Refused> {
        let query: Query =
            serde_json::from_slice(question).map_err(|cause| Refused::Malformed(cause.to_string()))?;
        let fleet = self.desks.directory.fleet();
        let unknown = || Refused::UnknownModel(query.model.clone());
        let served = fleet.served(&query.model).ok_or_else(unknown)?;
        let desks = self.desks.all();
        let desk = desks.get(&served.model).ok_or_else(unknown)?;
        let scope = KeyScope {
            secret: &self.secret,
            lora_name: query.lora_name.as_deref().unwrap_or(&served.adapter),
            cache_salt: &query.cache_salt,
        };
        let prompt = Prompt::of(&query, scope.root())?;
        Ok(depths(&desk.index.view(), (&fleet, &served.model), &prompt))
    }
}

/// The keys asked for, or what they are computed from.
enum Prompt<'a> {
    Keys(Vec<BlockKey>),
    Tokens { root: BlockKey, tokens: &'a [u32], media: Vec<MediaSpan> },
}

impl<'a> Prompt<'a> {
    fn of(query: &'a Query, root: BlockKey) -> Result<Self, Refused> {
        let malformed = |what: &str| Err(Refused::Malformed(what.to_owned()));
        match (&query.token_ids, &query.keys) {
            (Some(tokens), None) => Ok(Self::Tokens { root, tokens, media: spans(&query.media)? }),
            (None, Some(_)) if !query.media.is_empty() => malformed("`media` goes with `token_ids` only"),
            (None, Some(keys)) => Ok(Self::Keys(keys.iter().map(|key| BlockKey::new(*key)).collect())),
            (Some(_), Some(_)) | (None, None) => malformed("give one of `token_ids` and `keys`"),
        }
    }

    fn keys(&self, block_size: u32) -> Vec<BlockKey> {
        match self {
            Self::Keys(keys) => keys.clone(),
            Self::Tokens { root, tokens, media } => block_keys(*root, tokens, media, block_size),
        }
    }
}

/// Orders media by first token; ranges must not overlap.
fn spans(media: &[Media]) -> Result<Vec<MediaSpan>, Refused> {
    let span = |item: &Media| MediaSpan {
        key: MediaId::new(&item.media_id).key(),
        start: item.offset,
        len: item.length,
    };
    let mut spans: Vec<MediaSpan> = media.iter().map(span).collect();
    spans.sort_by_key(|span| span.start);
    let overlap = spans.windows(2).any(|pair| matches!(pair, [one, two] if one.end() > two.start));
    let endless = spans.iter().any(|span| span.start.checked_add(span.len).is_none());
    if overlap || endless {
        return Err(Refused::Malformed("ranges of `media` must end, and not overlap".to_owned()));
    }
    Ok(spans)
}

/// Looks the prompt up for each holder of the model.
fn depths(
    view: &IndexView,
    (fleet, model): (&Fleet, &ModelName),
    prompt: &Prompt<'_>,
) -> BTreeMap<String, Matched> {
    let mut found = BTreeMap::new();
    for block_size in fleet.block_sizes(model) {
        let mut matches = Matches::new();
        view.reader().matches(&prompt.keys(block_size), &mut matches);
        for seat in fleet.seats(model).iter().filter(|seat| seat.worker.card.block_size == block_size) {
            let known = view.holder(&seat.holder);
            let credit =
                known.filter(|known| !matches!(known.state, Phase::Unknown | Phase::Gone | Phase::Refused));
            let depth = credit.and_then(|known| known.id).map_or(0, |id| matches.depth_of(id));
            let tokens = u64::from(depth) * u64::from(block_size);
            let worker: &mut Matched = found.entry(seat.holder.worker.to_string()).or_default();
            worker.matched_tokens = worker.matched_tokens.max(tokens);
            worker.ranks.insert(seat.holder.rank.0, tokens);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<usize, &str>) {
        let query: Result<Query, _> = serde_json::from_str(text);
        let prompt = query.map_err(|cause| cause.to_string()).and_then(|query| {
            match Prompt::of(&query, BlockKey::new(7)) {
                Ok(prompt) => Ok(prompt.keys(2).len()),
                Err(refused) => Err(refused.to_string()),
            }
        });
        match (prompt, expected) {
            (Ok(keys), Ok(expected)) => assert_eq!(keys, expected, "{text}"),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (other, _) => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_question_has_tokens_or_keys() {
        check(r#"{"model":"m","token_ids":[1,2,3]}"#, Ok(1));
        check(r#"{"model":"m","keys":[1,2,18446744073709551615]}"#, Ok(3));
        check(r#"{"model":"m"}"#, Err("one of"));
        check(r#"{"model":"m","keys":[],"token_ids":[]}"#, Err("one of"));
        check(r#"{"model":"m","tokens":[1]}"#, Err("tokens"));
        check(r#"{"model":"m","keys":[1],"media":[{"media_id":"a","offset":0,"length":1}]}"#, Err("media"));
    }

    #[test]
    fn media_ranges_do_not_overlap() {
        let media = |ranges: &[(u32, u32)]| -> Vec<Media> {
            ranges
                .iter()
                .map(|(offset, length)| Media { media_id: "a".to_owned(), offset: *offset, length: *length })
                .collect()
        };
        assert_eq!(spans(&media(&[(4, 2), (0, 4)])).unwrap().len(), 2);
        assert!(spans(&media(&[(0, 5), (4, 2)])).is_err());
        assert!(spans(&media(&[(u32::MAX, 2)])).is_err());
    }
}
