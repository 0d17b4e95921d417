//! The engine's blocks by the engine's own hashes: who is whose child, how many copies there are, and which are visible.
//!
//! A block is *present* while a copy of it is cached, *keyed* once its block key is known, and *visible* while it and
//! all blocks before it are present and keyed: only visible blocks are told to anybody.

use std::collections::HashMap;

use identity::{BlockKey, chain_key};

use super::key_set::KeySet;
use crate::batch::EngineHash;

/// Index of a node in the slab.
pub(super) type NodeId = u32;

/// What stands before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    /// Nothing: it begins a prompt under this root.
    Root(BlockKey),
    /// Another block.
    Node(NodeId),
    /// A block, or none, of which the engine has not told.
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) hash: EngineHash,
    pub(super) above: Above,
    /// Hash of the block's own content; none where it is not comparable.
    pub(super) local: Option<u64>,
    key: Option<BlockKey>,
    /// Number of blocks before it.
    depth: u32,
    pub(super) copies: u32,
    visible: bool,
    first_child: Option<NodeId>,
    next: Option<NodeId>,
    previous: Option<NodeId>,
}

/// A forest of blocks, bounded in number.
#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    by_hash: HashMap<EngineHash, NodeId>,
    nodes_max: u32,
    /// Nodes with a copy.
    pub(super) present: u64,
    /// Nodes with a copy and a key.
    pub(super) keyed: u64,
    /// Stores that contradict what was stored under the same hash.
    pub(super) conflicts: u64,
}

impl Graph {
    pub(super) fn new(nodes_max: u32) -> Self {
        let (nodes, free, by_hash) = (Vec::new(), Vec::new(), HashMap::new());
        Self { nodes, free, by_hash, nodes_max, present: 0, keyed: 0, conflicts: 0 }
    }

    pub(super) fn clear(&mut self) {
        let conflicts = self.conflicts;
        *self = Self { conflicts, ..Self::new(self.nodes_max) };
    }

    /// Finds the node of a hash, or makes an absent one of which nothing is known; none where the graph is full.
    pub(super) fn intern(&mut self, hash: &EngineHash) -> Option<NodeId> {
        if let Some(id) = self.by_hash.get(hash) {
            return Some(*id);
        }
        if self.by_hash.len() >= usize::try_from(self.nodes_max).unwrap_or(usize::MAX) {
            return None;
        }
        let node = Node {
            hash: hash.clone(),
            above: Above::Unknown,
            local: None,
            key: None,
            depth: 0,
            copies: 0,
            visible: false,
            first_child: None,
            next: None,
            previous: None,
        };
        let id = if let Some(id) = self.free.pop() {
            *self.node_mut(id) = node;
            id
        } else {
            let id = NodeId::try_from(self.nodes.len()).ok()?;
            self.nodes.push(node);
            id
        };
        self.by_hash.insert(hash.clone(), id);
        Some(id)
    }

    /// Adds `copies` copies of a block; none where the graph is full.
    pub(super) fn store(
        &mut self,
        keys: &mut KeySet,
        hash: &EngineHash,
        content: (Above, Option<u64>),
        copies: u32,
    ) -> Option<NodeId> {
        let id = self.intern(hash)?;
        let (above, local) = content;
        let node = self.node(id);
        if (node.above, node.local) != content {
            if node.copies == 0 && !self.is_above(id, above) {
                self.define(id, above, local);
            } else {
                self.conflicts = self.conflicts.saturating_add(1);
            }
        }
        let node = self.node_mut(id);
        let before = node.copies;
        node.copies = before.saturating_add(copies);
        if before == 0 && copies > 0 {
            let keyed = node.key.is_some();
            self.present += 1;
            self.keyed += u64::from(keyed);
        }
        self.reveal(keys, id);
        Some(id)
    }

    pub(super) fn key(&self, id: NodeId) -> Option<BlockKey> {
        self.node(id).key
    }

    /// Returns the key of the block that stands `steps` before another.
    pub(super) fn key_before(&self, id: NodeId, steps: u64) -> Option<BlockKey> {
        let mut id = id;
        for _ in 0..steps {
            let Above::Node(parent) = self.node(id).above else { return None };
            id = parent;
        }
        self.key(id)
    }

    /// Takes one copy of a block; answers whether one was known.
    pub(super) fn remove(&mut self, keys: &mut KeySet, hash: &EngineHash) -> bool {
        let Some(id) = self.by_hash.get(hash).copied() else {
            return false;
        };
        let node = self.node_mut(id);
        if node.copies == 0 {
            return false;
        }
        node.copies -= 1;
        if node.copies == 0 {
            let keyed = node.key.is_some();
            self.present -= 1;
            self.keyed -= u64::from(keyed);
            self.hide(keys, id);
            self.prune(id);
        }
        true
    }

    /// Drops a node that is neither present nor needed by a child, and those before it that then are neither.
    pub(super) fn prune(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next.take() {
            let node = self.node(id);
            if node.copies > 0 || node.first_child.is_some() {
                return;
            }
            if let Above::Node(parent) = node.above {
                next = Some(parent);
            }
            self.detach(id);
            let hash = std::mem::replace(&mut self.node_mut(id).hash, EngineHash::Int(0));
            self.by_hash.remove(&hash);
            self.free.push(id);
        }
    }

    /// Lists the slots in memory order; a slot that is free, or holds nothing worth keeping, is none.
    pub(super) fn slots(&self) -> impl Iterator<Item = Option<&Node>> {
        self.nodes.iter().map(|node| (node.copies > 0 || node.first_child.is_some()).then_some(node))
    }

    /// Gives a block without copies another content, and derives the keys of everything below it.
    fn define(&mut self, id: NodeId, above: Above, local: Option<u64>) {
        self.detach(id);
        if let Above::Node(parent) = above {
            self.attach(id, parent);
        }
        let node = self.node_mut(id);
        node.above = above;
        node.local = local;
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = self.node(id);
            let before = match node.above {
                Above::Root(root) => Some((root, 0)),
                Above::Node(parent) => {
                    let parent = self.node(parent);
                    parent.key.map(|key| (key, parent.depth.saturating_add(1)))
                }
                Above::Unknown => None,
            };
            let (key, depth) = match (before, node.local) {
                (Some((parent, depth)), Some(local)) => (Some(chain_key(parent, local)), depth),
                _ => (None, 0),
            };
            if node.copies > 0 {
                self.keyed =
                    (self.keyed + u64::from(key.is_some())).saturating_sub(u64::from(node.key.is_some()));
            }
            let node = self.node_mut(id);
            node.key = key;
            node.depth = depth;
            open.extend(self.children(id));
        }
    }

    /// Shows a block, and everything below it, that has become visible.
    fn reveal(&mut self, keys: &mut KeySet, id: NodeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = self.node(id);
            let Some(key) = node.key.filter(|_| node.copies > 0 && !node.visible) else {
                continue;
            };
            let parent = match node.above {
                Above::Root(_) => None,
                Above::Node(parent) if self.node(parent).visible => self.node(parent).key,
                Above::Node(_) | Above::Unknown => continue,
            };
            keys.show(key, parent, node.depth);
            self.node_mut(id).visible = true;
            open.extend(self.children(id));
        }
    }

    /// Withdraws a visible block and everything below it.
    fn hide(&mut self, keys: &mut KeySet, id: NodeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = self.node_mut(id);
            if !node.visible {
                continue;
            }
            node.visible = false;
            if let Some(key) = node.key {
                keys.hide(key);
            }
            open.extend(self.children(id));
        }
    }

    /// Tells whether `id` is `above` or stands before it, so that it cannot be put below it.
    fn is_above(&self, id: NodeId, above: Above) -> bool {
        if above == Above::Node(id) {
            return true;
        }
        if self.node(id).first_child.is_none() {
            return false;
        }
        let mut above = above;
        while let Above::Node(parent) = above {
            if parent == id {
                return true;
            }
            above = self.node(parent).above;
        }
        false
    }

    fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.node(id).first_child, |child| self.node(*child).next)
    }

    fn attach(&mut self, id: NodeId, parent: NodeId) {
        let first = self.node_mut(parent).first_child.replace(id);
        if let Some(first) = first {
            self.node_mut(first).previous = Some(id);
        }
        let node = self.node_mut(id);
        (node.previous, node.next) = (None, first);
    }

    fn detach(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let Above::Node(parent) = std::mem::replace(&mut node.above, Above::Unknown) else {
            return;
        };
        let (previous, next) = (node.previous.take(), node.next.take());
        match previous {
            Some(previous) => self.node_mut(previous).next = next,
            None => self.node_mut(parent).first_child = next,
        }
        if let Some(next) = next {
            self.node_mut(next).previous = previous;
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids are made by `intern` alone and slots are never taken away"
    )]
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids are made by `intern` alone and slots are never taken away"
    )]
    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }
}
