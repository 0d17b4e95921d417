//! What placement needs to know of a request.

use identity::{BlockKey, MediaKey};

/// A request as the router sees it: names of its blocks, and what its media weigh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingRequest {
    /// One chain of block keys per distinct block size among the candidate pools.
    pub chains: Vec<KeyChain>,
    /// Prompt length in tokens, expansions included.
    pub prompt_tokens: u32,
    /// The request's media.
    pub mm_routing_info: MediaRouting,
}

impl RoutingRequest {
    /// Finds the chain for a block size.
    #[must_use]
    pub fn chain(&self, block_size: u32) -> Option<&[BlockKey]> {
        self.chains.iter().find(|chain| chain.block_size == block_size).map(|chain| chain.keys.as_slice())
    }
}

/// The keys of a prompt's full blocks, for one block size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChain {
    /// Tokens per block.
    pub block_size: u32,
    /// Keys in prompt order.
    pub keys: Vec<BlockKey>,
}

/// The media of a request, whatever stands before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaRouting {
    /// (media key, tokens) of each image, sorted; an image that occurs twice is listed twice.
    pub image_multiset: Vec<(MediaKey, u32)>,
    /// Sum of the image tokens.
    pub total_image_tokens: u32,
}
