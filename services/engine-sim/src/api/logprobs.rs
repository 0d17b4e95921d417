//! Log-probabilities: made up, but in the API's shapes, and the same for the same token.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Engine;

/// Returns a number between −8 and −1 that depends on the token only.
fn logprob(token: u32) -> f64 {
    -1.0 - f64::from(token.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 * 7.0
}

/// `logprobs` of a chat answer.
#[derive(Debug, Serialize)]
pub(crate) struct ChatLogprobs {
    content: Vec<TokenLogprob>,
}

#[derive(Debug, Serialize)]
struct TokenLogprob {
    #[serde(flatten)]
    token: Alternative,
    top_logprobs: Vec<Alternative>,
}

#[derive(Clone, Debug, Serialize)]
struct Alternative {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl ChatLogprobs {
    /// Describes tokens, each with up to this many alternatives, of which it is the first.
    pub(crate) fn new(engine: &Engine, tokens: &[u32], alternatives: u32) -> Self {
        let describe = |&id: &u32| {
            let text = engine.text(&[id]);
            let token = Alternative { bytes: text.clone().into_bytes(), token: text, logprob: logprob(id) };
            let top_logprobs = if alternatives > 0 { vec![token.clone()] } else { Vec::new() };
            TokenLogprob { token, top_logprobs }
        };
        Self { content: tokens.iter().map(describe).collect() }
    }
}

/// `logprobs` of a completion.
#[derive(Debug, Serialize)]
pub(crate) struct CompletionLogprobs {
    text_offset: Vec<usize>,
    token_logprobs: Vec<f64>,
    tokens: Vec<String>,
    top_logprobs: Vec<BTreeMap<String, f64>>,
}

impl CompletionLogprobs {
    /// Describes tokens; offsets count characters.
    pub(crate) fn new(engine: &Engine, ids: &[u32]) -> Self {
        let tokens: Vec<String> = ids.iter().map(|&id| engine.text(&[id])).collect();
        let offset = |at: &mut usize, token: &String| {
            let start = *at;
            *at += token.chars().count();
            Some(start)
        };
        let text_offset = tokens.iter().scan(0, offset).collect();
        let token_logprobs: Vec<f64> = ids.iter().map(|&id| logprob(id)).collect();
        let top = tokens
            .iter()
            .cloned()
            .zip(&token_logprobs)
            .map(|(token, &logprob)| BTreeMap::from([(token, logprob)]));
        let top_logprobs = top.collect();
        Self { text_offset, token_logprobs, tokens, top_logprobs }
    }
}

/// `prompt_logprobs`: null for the first token, then one object for each.
#[derive(Debug, Serialize)]
pub(crate) struct PromptLogprobs(Vec<Option<BTreeMap<u32, PromptLogprob>>>);

#[derive(Debug, Serialize)]
struct PromptLogprob {
    logprob: f64,
    rank: u32,
    decoded_token: String,
}

impl PromptLogprobs {
    /// Describes a prompt.
    pub(crate) fn new(engine: &Engine, tokens: &[u32]) -> Self {
        let describe = |&id: &u32| {
            let entry = PromptLogprob { logprob: logprob(id), rank: 1, decoded_token: engine.text(&[id]) };
            Some(BTreeMap::from([(id, entry)]))
        };
        let rest = tokens.iter().skip(1).map(describe);
        Self(tokens.first().map(|_| None).into_iter().chain(rest).collect())
    }
}
