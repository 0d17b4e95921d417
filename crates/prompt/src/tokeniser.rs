//! The tokeniser, with a cache of segments between added tokens.

mod segments;

use std::str::FromStr;

use tokenizers::{AddedToken, Tokenizer};

use crate::model_files::ModelError;
use crate::prompt_length;
use crate::segment_cache::SegmentCache;
use segments::Segments;

/// Short segments tokenise as fast as they are looked up.
const CACHED_BYTES_MIN: usize = 1;

/// A model's tokeniser.
#[derive(Debug)]
pub(crate) struct Tokeniser {
    inner: Tokenizer,
    /// How to split a text; absent where segments are not provably independent.
    segments: Option<Segments>,
    /// What surrounds a text that is tokenised with special tokens; absent where it depends on the text.
    affixes: Option<Affixes>,
    cache: SegmentCache,
}

/// The special tokens before and after a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Affixes {
    before: Vec<u32>,
    after: Vec<u32>,
}

/// The tokeniser failed on a text; the reason is its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot tokenise: {0}")]
pub struct TokenizeError(String);

impl Tokeniser {
    /// Loads `tokenizer.json`, and what `tokenizer_config.json` adds to it.
    pub(crate) fn load(
        json: &[u8],
        config: &serde_json::Value,
        cache: SegmentCache,
    ) -> Result<Self, ModelError> {
        let invalid = |reason: String| ModelError::Invalid { file: "tokenizer.json", reason };
        let text = std::str::from_utf8(json).map_err(|error| invalid(error.to_string()))?;
        let mut inner = Tokenizer::from_str(text).map_err(|error| invalid(error.to_string()))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| invalid(error.to_string()))?;
        add_configured(&mut inner, config).map_err(|error| invalid(error.to_string()))?;
        let segments = Segments::of(&inner);
        let affixes = Affixes::of(&inner);
        Ok(Self { inner, segments, affixes, cache })
    }

    /// Tokenises a text in which added tokens may stand.
    pub(crate) fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizeError> {
        let affixes = if add_special_tokens { self.affixes.clone() } else { Some(Affixes::default()) };
        let (Some(segments), Some(affixes), false) = (&self.segments, affixes, text.is_empty()) else {
            return self.encode_whole(text, add_special_tokens);
        };
        let mut tokens = affixes.before;
        tokens.reserve(text.len() / 3);
        segments.split(text, |segment, added| {
            self.push_segment(segment, &mut tokens)?;
            tokens.extend(added);
            Ok(())
        })?;
        tokens.extend(affixes.after);
        Ok(tokens)
    }

    /// Tokenises a text as one piece, past the cache.
    pub(crate) fn encode_whole(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, TokenizeError> {
        let encoding = self.inner.encode_fast(text, add_special_tokens);
        encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(|error| TokenizeError(error.to_string()))
    }

    /// Tells whether a text has more than `tokens_max` tokens, without tokenising much more than that.
    pub(crate) fn exceeds(&self, text: &str, tokens_max: u32) -> bool {
        let count = |text: &str| self.inner.encode_fast(text, false).ok().map(|encoding| encoding.len());
        prompt_length::exceeds(text, usize::try_from(tokens_max).unwrap_or(usize::MAX), count)
    }

    pub(crate) fn decode(&self, tokens: &[u32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        self.inner.decode(tokens, skip_special_tokens).map_err(|error| TokenizeError(error.to_string()))
    }

    pub(crate) fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Finds a token by which texts split before anything else.
    pub(crate) fn added_token_id(&self, token: &str) -> Option<u32> {
        self.inner.get_added_vocabulary().get_vocab().get(token).copied()
    }

    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub(crate) fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    pub(crate) const fn cache(&self) -> &SegmentCache {
        &self.cache
    }

    /// Tells whether texts are split at added tokens, and their segments kept.
    pub(crate) const fn is_segmented(&self) -> bool {
        self.segments.is_some()
    }

    fn push_segment(&self, segment: &str, tokens: &mut Vec<u32>) -> Result<(), TokenizeError> {
        if segment.is_empty() {
            return Ok(());
        }
        if segment.len() < CACHED_BYTES_MIN {
            tokens.extend_from_slice(&self.encode_whole(segment, false)?);
            return Ok(());
        }
        if let Some(known) = self.cache.get(segment) {
            tokens.extend_from_slice(&known);
            return Ok(());
        }
        let fresh = self.encode_whole(segment, false)?;
        self.cache.put(segment, &fresh);
        tokens.extend_from_slice(&fresh);
        Ok(())
    }
}

impl Affixes {
    /// Finds what a tokeniser puts around every text, by trying two.
    fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let around = |text: &str| {
            let bare = tokenizer.encode_fast(text, false).ok()?;
            let dressed = tokenizer.encode_fast(text, true).ok()?;
            let (bare, dressed) = (bare.get_ids(), dressed.get_ids());
            let place = dressed.windows(bare.len().max(1)).position(|window| window == bare)?;
            let (before, rest) = dressed.split_at_checked(place)?;
            let after = rest.get(bare.len()..)?;
            Some(Self { before: before.to_vec(), after: after.to_vec() })
        };
        let found = around("a")?;
        (around("two words") == Some(found.clone())).then_some(found)
    }
}

/// Adds the tokens that only `tokenizer_config.json` lists, in the order of their ids.
fn add_configured(tokenizer: &mut Tokenizer, config: &serde_json::Value) -> tokenizers::Result<()> {
    let Some(listed) = config.get("added_tokens_decoder").and_then(serde_json::Value::as_object) else {
        return Ok(());
    };
    let mut missing: Vec<(u32, AddedToken)> = Vec::new();
    for (id, token) in listed {
        let content = token.get("content").and_then(serde_json::Value::as_str);
        if let (Ok(id), Some(content)) = (id.parse(), content)
            && !content.is_empty()
            && tokenizer.token_to_id(content).is_none()
        {
            let flag = |name: &str| token.get(name).and_then(serde_json::Value::as_bool);
            let special = flag("special").unwrap_or_default();
            let added = AddedToken::from(content, special)
                .lstrip(flag("lstrip").unwrap_or_default())
                .rstrip(flag("rstrip").unwrap_or_default())
                .single_word(flag("single_word").unwrap_or_default())
                .normalized(flag("normalized").unwrap_or(!special));
            missing.push((id, added));
        }
    }
    missing.sort_by_key(|(id, _)| *id);
    tokenizer.add_tokens(missing.into_iter().map(|(_, token)| token))?;
    Ok(())
}
