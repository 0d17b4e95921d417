//! The index as a tree, for people.

use identity::BlockKey;

use crate::index::Index;
use crate::limits::HolderId;
use crate::runs::RunId;
use crate::slots::NONE;

/// A run of blocks in a view of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Runs above it.
    pub level: u32,
    /// Blocks before its first.
    pub depth: u32,
    /// Its first block.
    pub first: BlockKey,
    /// Blocks that some holder has.
    pub blocks: u32,
    /// Holders and how many of its blocks they have, by id.
    pub holders: Vec<(HolderId, u32)>,
    /// How many runs continue it, shown or not.
    pub children: u32,
}

impl Index {
    /// Lists the tree's runs down to `depth` levels and at most `limit` of them, each before those that continue it.
    #[must_use]
    pub fn tree(&self, depth: u32, limit: usize) -> Vec<Branch> {
        let mut branches = Vec::new();
        let mut ahead: Vec<(RunId, u32)> = Vec::new();
        if depth > 0 {
            ahead.extend(self.children(NONE).take(limit).map(|(run, _)| (run, 0)));
            ahead.reverse();
        }
        while let Some((run, level)) = ahead.pop() {
            let Some(meta) = self.runs.get(run).filter(|meta| meta.alive > 0) else { continue };
            let Some(first) = self.slots.key(meta.start) else { continue };
            if branches.len() >= limit {
                break;
            }
            let mut holders = self.members(run);
            holders.retain(|(holder, _)| self.held(*holder).is_some());
            holders.sort_unstable();
            let children = u32::try_from(self.children(run).count()).unwrap_or(u32::MAX);
            branches.push(Branch { level, depth: meta.depth, first, blocks: meta.alive, holders, children });
            if level + 1 < depth {
                ahead.extend(self.children(run).take(limit).map(|(child, _)| (child, level + 1)));
            }
        }
        branches
    }
}
