//! All prompts there are: few enough that an index can be read out by asking for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::ScheduleRequest;
use identity::{BlockKey, KeyScope, block_keys};
use placement::{KeyChain, Policy, RoutingRequest};

/// Tokens per block.
pub(crate) const SIZE: u32 = 4;
const FAMILIES: u64 = 4;
const PER_FAMILY: u64 = 4;
const SHARED: u64 = 3;

/// A block as engines name it: alike only where everything before it is.
pub(crate) type BlockId = u64;

#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) keys: Vec<BlockKey>,
    pub(crate) routing: Arc<RoutingRequest>,
}

#[derive(Debug)]
pub(crate) struct Prompts {
    pub(crate) all: Vec<Prompt>,
    /// The block before each, and its key.
    pub(crate) blocks: BTreeMap<BlockId, (Option<BlockId>, BlockKey)>,
}

impl Prompts {
    /// Makes families of prompts that begin alike.
    pub(crate) fn new() -> Self {
        let mut prompts = Self { all: Vec::new(), blocks: BTreeMap::new() };
        for family in 0..FAMILIES {
            for member in 0..PER_FAMILY {
                let shared = (0..SHARED).map(|at| family * 1000 + at);
                let own = (0..=member * 2).map(|at| family * 1000 + 100 * (member + 1) + at);
                prompts.add(shared.chain(own).collect());
            }
        }
        prompts
    }

    fn add(&mut self, blocks: Vec<BlockId>) {
        let tokens: Vec<u32> = blocks.iter().flat_map(|block| tokens(*block)).collect();
        let keys = block_keys(KeyScope::default().root(), &tokens, &[], SIZE);
        let mut before = None;
        for (block, key) in blocks.iter().zip(&keys) {
            self.blocks.insert(*block, (before, *key));
            before = Some(*block);
        }
        let routing = RoutingRequest {
            chains: vec![KeyChain { block_size: SIZE, keys: keys.clone() }],
            // One token more, so that a prompt can be cached to its last block.
            prompt_tokens: u32::try_from(tokens.len()).unwrap() + 1,
            ..RoutingRequest::default()
        };
        self.all.push(Prompt { blocks, keys, routing: Arc::new(routing) });
    }
}

impl Prompt {
    pub(crate) fn request(&self) -> ScheduleRequest {
        ScheduleRequest::new(Arc::clone(&self.routing), Policy::Kv)
    }
}

/// The tokens of a block.
pub(crate) fn tokens(block: BlockId) -> [u32; SIZE as usize] {
    [u32::try_from(block).unwrap(); SIZE as usize]
}
