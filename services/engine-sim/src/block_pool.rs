//! A fixed pool of KV blocks: reference counts, prefix lookup, and a free list that doubles as eviction order.
//!
//! ```text
//! free list:  head ── evicted first ──────────────────────────── evicted last ── tail
//!             blocks never cached (last freed first) │ cached blocks, least recently freed first
//! ```
//! A sequence frees its blocks last to first, so that of one chain the tail goes before the head.

use std::collections::HashMap;

use crate::block_hash::BlockHash;

/// Index of a block in the pool.
pub(crate) type BlockId = u32;

const NONE: BlockId = BlockId::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    references: u32,
    hash: Option<BlockHash>,
    previous: BlockId,
    next: BlockId,
}

/// The physical blocks of one hash: engines don't merge equal blocks that were computed twice.
#[derive(Clone, Debug)]
enum Copies {
    One(BlockId),
    Many(Vec<BlockId>),
}

/// All blocks of one rank.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    head: BlockId,
    tail: BlockId,
    free: u32,
    cached: HashMap<BlockHash, Copies>,
}

impl BlockPool {
    /// Creates a pool in which every block is free and nothing is cached.
    #[must_use]
    pub(crate) fn new(blocks: u32) -> Self {
        let mut pool = Self {
            blocks: vec![Block { references: 0, hash: None, previous: NONE, next: NONE }; blocks as usize],
            head: NONE,
            tail: NONE,
            free: 0,
            cached: HashMap::new(),
        };
        (0..blocks).for_each(|id| pool.push_back(id));
        pool
    }

    /// Returns how many blocks no sequence uses; cached ones are among them.
    #[must_use]
    pub(crate) const fn free_blocks(&self) -> u32 {
        self.free
    }

    /// Returns the size of the pool.
    #[must_use]
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Returns how many different hashes a lookup can find.
    #[cfg(test)]
    pub(crate) fn cached_hashes(&self) -> usize {
        self.cached.len()
    }

    /// Finds a block with this hash: of several copies the oldest.
    #[must_use]
    pub(crate) fn lookup(&self, hash: &BlockHash) -> Option<BlockId> {
        match self.cached.get(hash)? {
            Copies::One(id) => Some(*id),
            Copies::Many(ids) => ids.first().copied(),
        }
    }

    /// Says whether a sequence uses the block.
    #[must_use]
    pub(crate) fn in_use(&self, id: BlockId) -> bool {
        self.block(id).references > 0
    }

    /// Takes one more reference to a block found by [`Self::lookup`].
    pub(crate) fn retain(&mut self, id: BlockId) {
        if !self.in_use(id) {
            self.unlink(id);
        }
        self.block_mut(id).references += 1;
    }

    /// Takes the block that is first in eviction order, and tells which hash that evicts from the cache.
    /// Returns `None` if every block is in use.
    pub(crate) fn allocate(&mut self) -> Option<(BlockId, Option<BlockHash>)> {
        if self.head == NONE {
            return None;
        }
        let id = self.head;
        self.unlink(id);
        let evicted = self.uncache(id);
        self.block_mut(id).references = 1;
        Some((id, evicted))
    }

    /// Makes a block findable under `hash`. A block has at most one hash for as long as it is cached.
    pub(crate) fn cache(&mut self, id: BlockId, hash: BlockHash) {
        debug_assert!(self.block(id).hash.is_none(), "block {id} is cached twice");
        self.block_mut(id).hash = Some(hash);
        self.cached
            .entry(hash)
            .and_modify(|copies| match copies {
                Copies::One(first) => *copies = Copies::Many(vec![*first, id]),
                Copies::Many(ids) => ids.push(id),
            })
            .or_insert(Copies::One(id));
    }

    /// Drops one reference to each block, in this order: the first becomes the first to be evicted.
    pub(crate) fn release(&mut self, ids: impl IntoIterator<Item = BlockId>) {
        let mut never_cached = Vec::new();
        for id in ids {
            let block = self.block_mut(id);
            debug_assert!(block.references > 0, "block {id} is released while free");
            block.references = block.references.saturating_sub(1);
            if block.references > 0 {
                continue;
            }
            if block.hash.is_some() {
                self.push_back(id);
            } else {
                never_cached.push(id);
            }
        }
        never_cached.into_iter().rev().for_each(|id| self.push_front(id));
    }

    /// Forgets every hash; refused with `false` while a sequence uses blocks, as in vLLM.
    pub(crate) fn reset(&mut self) -> bool {
        if self.free != self.capacity() {
            return false;
        }
        self.cached.clear();
        self.blocks.iter_mut().for_each(|block| block.hash = None);
        true
    }

    fn uncache(&mut self, id: BlockId) -> Option<BlockHash> {
        let hash = self.block_mut(id).hash.take()?;
        let rest = match self.cached.remove(&hash)? {
            Copies::One(_) => Vec::new(),
            Copies::Many(ids) => ids.into_iter().filter(|&other| other != id).collect(),
        };
        match rest.as_slice() {
            [] => {}
            [only] => drop(self.cached.insert(hash, Copies::One(*only))),
            _ => drop(self.cached.insert(hash, Copies::Many(rest))),
        }
        Some(hash)
    }

    fn push_back(&mut self, id: BlockId) {
        let tail = self.tail;
        self.link(id, tail, NONE);
    }

    fn push_front(&mut self, id: BlockId) {
        let head = self.head;
        self.link(id, NONE, head);
    }

    fn link(&mut self, id: BlockId, previous: BlockId, next: BlockId) {
        let block = self.block_mut(id);
        block.previous = previous;
        block.next = next;
        self.set_neighbours(previous, next, id, id);
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { previous, next, .. } = *self.block(id);
        self.set_neighbours(previous, next, next, previous);
        self.free -= 1;
    }

    /// Makes `after` follow `previous` and `before` precede `next`; at an end of the list that is the end itself.
    fn set_neighbours(&mut self, previous: BlockId, next: BlockId, after: BlockId, before: BlockId) {
        if previous == NONE {
            self.head = after;
        } else {
            self.block_mut(previous).next = after;
        }
        if next == NONE {
            self.tail = before;
        } else {
            self.block_mut(next).previous = before;
        }
    }

    #[expect(clippy::indexing_slicing, reason = "ids come from this pool, which never shrinks")]
    fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "ids come from this pool, which never shrinks")]
    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}

#[cfg(test)]
mod tests;
