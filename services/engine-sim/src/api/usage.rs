//! The `usage` object.

use serde::Serialize;

/// Token counts of an answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    pub(crate) total_tokens: u32,
    pub(crate) completion_tokens: u32,
    pub(crate) prompt_tokens_details: Option<Details>,
    pub(crate) completion_tokens_details: (),
}

/// Where prompt tokens came from.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Details {
    pub(crate) cached_tokens: u32,
    pub(crate) created_cache_tokens: Option<u32>,
    pub(crate) multimodal_tokens: Option<MultimodalTokens>,
}

/// Media tokens by modality.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct MultimodalTokens {
    pub(crate) image: u32,
}

/// What a request's `usage` is made of, apart from what is generated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptCount {
    /// Tokens of all prompts.
    pub(crate) tokens: u32,
    /// Those in full blocks, which the engine keeps; chat only.
    pub(crate) in_full_blocks: Option<u32>,
    /// Media tokens among them.
    pub(crate) image_tokens: u32,
    /// Whether details are told at all.
    pub(crate) details: bool,
}

impl PromptCount {
    /// Composes the object of an answer that isn't streamed: absent details are null.
    pub(crate) fn usage(&self, cached_tokens: u32, completion_tokens: u32) -> Usage {
        let details = Details {
            cached_tokens,
            created_cache_tokens: self.in_full_blocks.map(|tokens| tokens.saturating_sub(cached_tokens)),
            multimodal_tokens: self
                .in_full_blocks
                .and((self.image_tokens > 0).then_some(MultimodalTokens { image: self.image_tokens })),
        };
        Usage {
            prompt_tokens: self.tokens,
            total_tokens: self.tokens.saturating_add(completion_tokens),
            completion_tokens,
            prompt_tokens_details: self.details.then_some(details),
            completion_tokens_details: (),
        }
    }
}

/// `usage` in a stream's last chunk: absent details are left out.
#[derive(Debug, Serialize)]
pub(crate) struct LastUsage {
    prompt_tokens: u32,
    total_tokens: u32,
    completion_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<LastDetails>,
}

#[derive(Debug, Serialize)]
struct LastDetails {
    cached_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_cache_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multimodal_tokens: Option<MultimodalTokens>,
}

impl From<Usage> for LastUsage {
    fn from(usage: Usage) -> Self {
        let details = |details: Details| LastDetails {
            cached_tokens: details.cached_tokens,
            created_cache_tokens: details.created_cache_tokens,
            multimodal_tokens: details.multimodal_tokens,
        };
        Self {
            prompt_tokens: usage.prompt_tokens,
            total_tokens: usage.total_tokens,
            completion_tokens: usage.completion_tokens,
            prompt_tokens_details: usage.prompt_tokens_details.map(details),
        }
    }
}

/// `usage` in every chunk of a stream that asked for it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RunningUsage {
    pub(crate) prompt_tokens: u32,
    pub(crate) total_tokens: u32,
    pub(crate) completion_tokens: u32,
    pub(crate) completion_tokens_details: (),
}
