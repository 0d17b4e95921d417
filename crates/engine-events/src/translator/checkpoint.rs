//! A translator's state taken out and put back, so that an agent's restart forgets nothing.

use std::collections::HashMap;

use identity::{BlockKey, KeyScope};
use serde::{Deserialize, Serialize};

use super::graph::Above;
use super::{Config, Translator};
use crate::batch::EngineHash;

/// Why a checkpoint cannot be used; start with an empty translator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Made with another block size or secret, so its keys are others.
    #[error("checkpoint was made with another block size or secret")]
    Scope,
    /// Holds more blocks than are allowed now.
    #[error("checkpoint of {blocks} blocks exceeds {blocks_max}")]
    TooLarge {
        /// What it holds.
        blocks: usize,
        /// What is allowed.
        blocks_max: u32,
    },
}

/// An owned copy of a translator's state, to be kept in a [`Record`](crate::Record).
#[derive(Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    block_size: u32,
    /// The root of a prompt without adapter and salt: tells secrets apart without keeping them.
    root: u64,
    main_group: Option<u32>,
    missed_max: u64,
    pool_blocks: u64,
    /// Each after the one above it.
    nodes: Vec<Saved>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    hash: EngineHash,
    above: SavedAbove,
    local: Option<u64>,
    copies: u32,
}

#[derive(Debug, Serialize, Deserialize)]
enum SavedAbove {
    Root(u64),
    /// Index in `nodes`.
    Node(u32),
    Unknown,
}

impl Translator {
    /// Copies the state.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        let ordered = self.graph.ordered();
        let mut index = HashMap::with_capacity(ordered.len());
        let mut nodes = Vec::with_capacity(ordered.len());
        for (place, (id, node)) in (0_u32..).zip(&ordered) {
            index.insert(*id, place);
            let above = match node.above {
                Above::Root(root) => SavedAbove::Root(root.get()),
                Above::Node(parent) => {
                    index.get(&parent).map_or(SavedAbove::Unknown, |place| SavedAbove::Node(*place))
                }
                Above::Unknown => SavedAbove::Unknown,
            };
            nodes.push(Saved { hash: node.hash.clone(), above, local: node.local, copies: node.copies });
        }
        Checkpoint {
            block_size: self.config.block_size,
            root: plain_root(&self.config),
            main_group: self.main_group,
            missed_max: self.missed_max,
            pool_blocks: self.pool_blocks,
            nodes,
        }
    }

    /// Rebuilds a translator; its keys and digest equal those at the checkpoint.
    ///
    /// # Errors
    /// The checkpoint does not fit the configuration: start with an empty translator.
    pub fn restore(config: Config, checkpoint: &Checkpoint) -> Result<Self, Error> {
        if checkpoint.block_size != config.block_size || checkpoint.root != plain_root(&config) {
            return Err(Error::Scope);
        }
        let mut translator = Self::new(config);
        let mut ids = Vec::with_capacity(checkpoint.nodes.len());
        for saved in &checkpoint.nodes {
            let above = match saved.above {
                SavedAbove::Root(root) => Above::Root(BlockKey::new(root)),
                SavedAbove::Node(place) => {
                    let id = usize::try_from(place).ok().and_then(|place| ids.get(place).copied());
                    id.map_or(Above::Unknown, Above::Node)
                }
                SavedAbove::Unknown => Above::Unknown,
            };
            let content = (above, saved.local);
            let Some(id) = translator.graph.store(&mut translator.keys, &saved.hash, content, saved.copies)
            else {
                let (blocks, blocks_max) = (checkpoint.nodes.len(), translator.config.blocks_max);
                return Err(Error::TooLarge { blocks, blocks_max });
            };
            ids.push(id);
        }
        translator.keys.settle();
        translator.main_group = checkpoint.main_group;
        translator.missed_max = checkpoint.missed_max;
        translator.pool_blocks = checkpoint.pool_blocks;
        Ok(translator)
    }
}

fn plain_root(config: &Config) -> u64 {
    KeyScope { secret: &config.secret, ..KeyScope::default() }.root().get()
}
