//! From an engine's events to changes of one set of block keys.

mod checkpoint;
mod content;
mod edges;
mod graph;
mod key_set;

use std::collections::HashSet;
use std::sync::Arc;

use identity::{BlockKey, KeySetDigest};
use membership::{Change, MediaRun, Run};

pub use checkpoint::{Checkpoint, Error as CheckpointError};
pub use key_set::KeyCopy;

use crate::batch::{Batch, Event, GroupKind, Place, Removed, Stored, Tier};
use content::{Content, Item};
use edges::Edges;
use graph::{Above, Graph, NodeId};
use key_set::KeySet;

/// What a translator must know of its engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tokens per block; events of another size get no credit.
    pub block_size: u32,
    /// The cluster's secret, part of every root.
    pub secret: Arc<str>,
    /// Tokens that stand for media, in engines that do not name the media of a block.
    pub placeholders: Vec<u32>,
    /// How many of the engine's blocks are remembered; further ones are refused and counted.
    pub blocks_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { block_size: 16, secret: Arc::from(""), placeholders: Vec::new(), blocks_max: 8 << 20 }
    }
}

/// What was seen and could not be credited, since the translator was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that could not be read.
    pub malformed: u64,
    /// Events of unknown names.
    pub unknown: u64,
    /// Blocks stored or removed in tiers other than the accelerator's memory.
    pub other_tier: u64,
    /// Blocks stored or removed in groups other than the main attention's.
    pub other_group: u64,
    /// Stored blocks that are not comparable: another block size, media without identity, an adapter without a name.
    pub uncredited: u64,
    /// Stored blocks beyond `blocks_max`.
    pub refused: u64,
    /// Removed blocks of which no store was seen.
    pub unknown_removed: u64,
    /// Stores that contradict an earlier one of the same hash.
    pub conflicts: u64,
}

/// Follows one cache of one engine process.
///
/// Invariants: every visible key's parent is visible (closure); the digest is that of the visible keys; the changes
/// returned so far, applied in order to an empty set, give the visible keys.
#[derive(Debug)]
pub struct Translator {
    config: Config,
    graph: Graph,
    keys: KeySet,
    edges: Edges,
    /// The group that is credited, once one was seen.
    main_group: Option<u32>,
    /// Upper bound on blocks that the engine may have cached before the translator listened.
    missed_max: u64,
    /// How many blocks the engine has room for, where `missed_max` is not 0.
    pool_blocks: u64,
    counts: Counts,
}

impl Translator {
    /// Starts with an empty cache.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let graph = Graph::new(config.blocks_max);
        let (keys, edges, counts) = (KeySet::default(), Edges::default(), Counts::default());
        Self { config, graph, keys, edges, main_group: None, missed_max: 0, pool_blocks: 0, counts }
    }

    /// Applies a batch and returns what changed on balance: what is gone before what is new, children before parents
    /// there and parents before children here.
    pub fn apply(&mut self, batch: &Batch) -> Vec<Change> {
        self.counts.malformed = self.counts.malformed.saturating_add(u64::from(batch.malformed));
        self.counts.unknown = self.counts.unknown.saturating_add(u64::from(batch.unknown));
        let had_keys = self.keys.len() > 0;
        let mut media = Vec::new();
        let mut changes = Vec::new();
        for event in &batch.events {
            match event {
                Event::Stored(stored) => self.store(stored, &mut media),
                Event::Removed(removed) => self.remove(removed),
                Event::Cleared => {
                    self.graph.clear();
                    self.keys.clear();
                    self.edges.clear();
                    self.missed_max = 0;
                    media.clear();
                    if had_keys {
                        changes = vec![Change::Cleared];
                    }
                }
            }
        }
        let (gone, new) = self.keys.net();
        if !gone.is_empty() {
            changes.push(Change::Removed { keys: gone });
        }
        changes.extend(new.into_iter().map(|run| stored_change(run, &media)));
        debug_assert!(self.keys.digest().len() == self.blocks(), "digest counts the visible keys");
        changes
    }

    /// Forgets everything: events were lost for good. The engine may still have up to `pool_blocks` blocks.
    pub fn forget(&mut self, pool_blocks: Option<u64>) -> Vec<Change> {
        let had_keys = self.keys.len() > 0;
        self.graph.clear();
        self.keys.clear();
        self.edges.clear();
        self.pool_blocks = pool_blocks.unwrap_or(u64::from(self.config.blocks_max)).max(1);
        self.missed_max = self.pool_blocks;
        if had_keys { vec![Change::Cleared] } else { Vec::new() }
    }

    /// Returns the digest of the visible keys.
    #[must_use]
    pub const fn digest(&self) -> &KeySetDigest {
        self.keys.digest()
    }

    /// Counts the visible keys.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Lists the visible keys, parents first.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.keys.runs()
    }

    /// Lists the visible keys that fall into some buckets of the digest, parents first.
    #[must_use]
    pub fn runs_in(&self, buckets: &[u8]) -> Vec<Run> {
        self.keys.runs_in(buckets)
    }

    /// Copies the visible keys; turn the copy into runs wherever there is time.
    #[must_use]
    pub fn copy(&self) -> KeyCopy {
        self.keys.copy()
    }

    /// Returns the share of the engine's blocks whose keys are known, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of block counts far below 2^52")]
    pub fn coverage(&self) -> f64 {
        let all = self.graph.present.saturating_add(self.missed_max);
        if all == 0 { 1.0 } else { self.graph.keyed as f64 / all as f64 }
    }

    /// Tells whether the engine has caches beside the credited one, as hybrid models do.
    #[must_use]
    pub const fn is_hybrid(&self) -> bool {
        self.counts.other_group > 0
    }

    /// Returns what was seen and not credited.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        Counts { conflicts: self.graph.conflicts, ..self.counts }
    }

    /// Returns what the translator knows of its engine.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn store(&mut self, stored: &Stored, media: &mut Vec<Told>) {
        if !self.credits(&stored.place, stored.hashes.len()) {
            return;
        }
        let content = content::content(stored, &self.config);
        let parent = stored.parent.as_ref();
        let mut above = match (parent.map(|hash| self.graph.intern(hash)), content.root) {
            (Some(Some(parent)), _) => Above::Node(parent),
            (None, Some(root)) => Above::Root(root),
            (Some(None), _) | (None, None) => Above::Unknown,
        };
        let before = above;
        let mut nodes = Vec::with_capacity(stored.hashes.len());
        for (index, (hash, local)) in stored.hashes.iter().zip(&content.locals).enumerate() {
            let Some(node) = self.graph.store(&mut self.keys, hash, (above, *local), 1) else {
                let refused = stored.hashes.len() - index;
                self.counts.refused = self.counts.refused.saturating_add(refused as u64);
                break;
            };
            self.counts.uncredited = self.counts.uncredited.saturating_add(u64::from(local.is_none()));
            nodes.push(node);
            above = Above::Node(node);
        }
        if let Above::Node(parent) = before {
            self.graph.prune(parent);
        }
        self.missed_max = self.missed_max.min(self.pool_blocks.saturating_sub(self.graph.present));
        self.tell(stored, content, &nodes, media);
    }

    /// Tells of the media that stored blocks show to their end.
    fn tell(&mut self, stored: &Stored, content: Content, nodes: &[NodeId], media: &mut Vec<Told>) {
        let reached = stored.parent.as_ref().and_then(|parent| self.edges.take(parent));
        let first_block = nodes.first().and_then(|node| self.graph.key(*node));
        if let (Some(run), Some(shown_by), false) = (reached, first_block, content.carries) {
            media.push(Told { run, shown_by });
        }
        media.extend(content.media.iter().filter_map(|item| self.told(item, nodes)));
        let edge = content.edge.and_then(|item| self.told(&item, nodes));
        if let (Some(edge), Some(last)) = (edge, stored.hashes.last()) {
            self.edges.put(last.clone(), edge.run);
        }
    }

    /// Names the blocks in which an item begins and ends; none where they have no keys.
    fn told(&self, item: &Item, nodes: &[NodeId]) -> Option<Told> {
        let key = |block: usize| self.graph.key(*nodes.get(block)?);
        let first_key = match usize::try_from(item.first) {
            Ok(block) => key(block),
            Err(_) => self.graph.key_before(*nodes.first()?, item.first.unsigned_abs()),
        };
        let run = MediaRun { id: item.id.clone(), first_key: first_key?, tokens: item.tokens };
        Some(Told { run, shown_by: key(item.last)? })
    }

    fn remove(&mut self, removed: &Removed) {
        if removed.place.tier == Tier::Other {
            self.counts.other_tier = self.counts.other_tier.saturating_add(removed.hashes.len() as u64);
            return;
        }
        if self.main_group.is_some_and(|main| main != removed.place.group) {
            self.counts.other_group = self.counts.other_group.saturating_add(removed.hashes.len() as u64);
            return;
        }
        for hash in &removed.hashes {
            if !self.graph.remove(&mut self.keys, hash) {
                self.counts.unknown_removed = self.counts.unknown_removed.saturating_add(1);
                self.missed_max = self.missed_max.saturating_sub(1);
            }
        }
    }

    /// Tells whether stored blocks belong to the credited cache, and counts them where they do not.
    fn credits(&mut self, place: &Place, blocks: usize) -> bool {
        if place.tier == Tier::Other {
            self.counts.other_tier = self.counts.other_tier.saturating_add(blocks as u64);
            return false;
        }
        let main = match (place.kind, self.main_group) {
            (Some(GroupKind::Partial), _) => false,
            (Some(GroupKind::Full), None) => true,
            (Some(GroupKind::Full) | None, Some(main)) => main == place.group,
            // Releases that do not tell the kind: a single group, or group 0 of several.
            (None, None) => place.group == 0,
        };
        if main {
            self.main_group = Some(place.group);
        } else {
            self.counts.other_group = self.counts.other_group.saturating_add(blocks.max(1) as u64);
        }
        main
    }
}

/// A media item, and the block whose store shows the end of its range.
#[derive(Debug)]
struct Told {
    run: MediaRun,
    shown_by: BlockKey,
}

fn stored_change(run: Run, media: &[Told]) -> Change {
    let media = if media.is_empty() {
        Vec::new()
    } else {
        let keys: HashSet<BlockKey> = run.keys.iter().copied().collect();
        let shown = media.iter().filter(|told| keys.contains(&told.shown_by));
        shown.map(|told| told.run.clone()).collect()
    };
    Change::Stored { parent: run.parent, keys: run.keys, media }
}
