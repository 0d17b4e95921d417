//! A translator's state taken out and put back, so that an agent's restart forgets nothing.

use identity::{BlockKey, KeyScope};
use serde::{Deserialize, Serialize};

use super::graph::{Above, Node, NodeId};
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
    /// In the order of memory; none where there was nothing.
    nodes: Vec<Option<Saved>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    hash: EngineHash,
    above: SavedAbove,
    local: Option<u64>,
    copies: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
        let save = |node: &Node| Saved {
            hash: node.hash.clone(),
            above: match node.above {
                Above::Root(root) => SavedAbove::Root(root.get()),
                Above::Node(parent) => SavedAbove::Node(parent),
                Above::Unknown => SavedAbove::Unknown,
            },
            local: node.local,
            copies: node.copies,
        };
        Checkpoint {
            block_size: self.config.block_size,
            root: plain_root(&self.config),
            main_group: self.main_group,
            missed_max: self.missed_max,
            pool_blocks: self.pool_blocks,
            nodes: self.graph.slots().map(|node| node.map(save)).collect(),
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
        let mut ids: Vec<Option<NodeId>> = vec![None; checkpoint.nodes.len()];
        for place in 0..checkpoint.nodes.len() {
            for (place, saved) in line(checkpoint, &ids, place) {
                let above = match saved.above {
                    SavedAbove::Root(root) => Above::Root(BlockKey::new(root)),
                    SavedAbove::Node(parent) => {
                        let id = usize::try_from(parent)
                            .ok()
                            .and_then(|parent| ids.get(parent).copied().flatten());
                        id.map_or(Above::Unknown, Above::Node)
                    }
                    SavedAbove::Unknown => Above::Unknown,
                };
                let content = (above, saved.local);
                let Some(id) =
                    translator.graph.store(&mut translator.keys, &saved.hash, content, saved.copies)
                else {
                    let (blocks, blocks_max) = (checkpoint.nodes.len(), translator.config.blocks_max);
                    return Err(Error::TooLarge { blocks, blocks_max });
                };
                if let Some(slot) = ids.get_mut(place) {
                    *slot = Some(id);
                }
            }
        }
        translator.keys.settle();
        translator.main_group = checkpoint.main_group;
        translator.missed_max = checkpoint.missed_max;
        translator.pool_blocks = checkpoint.pool_blocks;
        Ok(translator)
    }
}

/// Lists what has to be restored for a slot: first what stands above it and is not there yet, the slot itself last.
fn line<'a>(checkpoint: &'a Checkpoint, ids: &[Option<NodeId>], place: usize) -> Vec<(usize, &'a Saved)> {
    let mut line = Vec::new();
    let mut next = Some(place);
    while let Some(place) = next.take() {
        let Some(Some(saved)) = checkpoint.nodes.get(place) else { break };
        // A damaged record could go round in circles.
        if ids.get(place).copied().flatten().is_some() || line.len() > checkpoint.nodes.len() {
            break;
        }
        line.push((place, saved));
        if let SavedAbove::Node(parent) = saved.above {
            next = usize::try_from(parent).ok();
        }
    }
    line.reverse();
    line
}

fn plain_root(config: &Config) -> u64 {
    KeyScope { secret: &config.secret, ..KeyScope::default() }.root().get()
}
