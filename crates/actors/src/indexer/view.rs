//! The published view of an index.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use block_index::{HolderId, Reader};
use identity::{Holder, Incarnation, WorkerId};
use membership::replica::{Phase, Status};

use crate::directory::Pulse;

/// An index as of one batch; the reader shows later changes of the same blocks as they happen.
#[derive(Clone, Debug)]
pub struct IndexView {
    pub(super) reader: Reader,
    pub(super) holders: HashMap<Holder, Arc<HolderView>>,
    pub(super) by_id: Vec<Option<Holder>>,
    pub(super) epoch: u64,
}

/// A holder as a replica knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HolderView {
    /// Its name in the reader's answers; none while it has no place in the index.
    pub id: Option<HolderId>,
    /// Where the replica stands.
    pub state: Phase,
    /// The engine life that its blocks belong to.
    pub incarnation: Option<Incarnation>,
    /// Sequence of the last delta in the index.
    pub seq: u64,
    /// Sequence of the agent, as of the last beat.
    pub beat_seq: u64,
    /// Blocks removed since the holder has its place in the index; grows.
    pub removed: u64,
    /// Blocks in the index.
    pub blocks: u64,
    /// Digest of these, folded.
    pub digest: u64,
    /// Whether the digest equalled the agent's when last compared at equal sequence; none before.
    pub agrees: Option<bool>,
    /// Sets fetched from the agent that did not verify.
    pub refuted: u64,
    /// Share of the engine's cached blocks that the agent knows, 0 to 1.
    pub coverage: f32,
    /// Requests that the engine runs, as of the last beat.
    pub running: u32,
    /// Requests that wait in the engine.
    pub waiting: u32,
    /// Share of its KV cache in use, 0 to 1.
    pub kv_usage: f32,
    /// Whether the engine answered its agent.
    pub engine_healthy: bool,
    /// When the last beat was heard, by the process's clock; none before the first.
    pub beat_at: Option<Duration>,
}

impl HolderView {
    /// Takes over what the replica and the last beat say; the blocks stay.
    pub(super) fn learn(&mut self, status: &Status) {
        self.state = status.phase;
        (self.agrees, self.refuted) = (status.agrees, status.refuted);
        self.beat_at = status.beat_at;
        if let Some(beat) = &status.beat {
            self.beat_seq = beat.seq;
            self.coverage = beat.coverage;
            (self.running, self.waiting, self.kv_usage) = (beat.running, beat.waiting, beat.kv_usage);
            self.engine_healthy = beat.engine_healthy;
        }
    }
}

impl IndexView {
    /// Makes a view without holders.
    pub(super) fn empty(reader: Reader) -> Self {
        Self { reader, holders: HashMap::new(), by_id: Vec::new(), epoch: 0 }
    }

    /// Copies the view with what is new of its holders; blocks of a life that is over are given up.
    pub(super) fn with_news(&self, statuses: &HashMap<Holder, Status>) -> Self {
        let mut view = self.clone();
        for (holder, status) in statuses {
            if let Some(known) = view.holders.get_mut(holder) {
                let known = Arc::make_mut(known);
                known.learn(status);
                if status.incarnation.is_some_and(|present| known.incarnation.is_none_or(|old| old < present))
                {
                    (known.id, known.blocks, known.incarnation) = (None, 0, status.incarnation);
                }
            }
        }
        view
    }

    /// Returns the lock-free reader of the blocks.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Lists the holders, in no order.
    pub fn holders(&self) -> impl Iterator<Item = (&Holder, &HolderView)> {
        self.holders.iter().map(|(holder, view)| (holder, &**view))
    }

    /// Finds a holder.
    #[must_use]
    pub fn holder(&self, holder: &Holder) -> Option<&HolderView> {
        self.holders.get(holder).map(|view| &**view)
    }

    /// Finds whom an id of the reader's answers names.
    #[must_use]
    pub fn holder_of(&self, id: HolderId) -> Option<&Holder> {
        self.by_id.get(id.index())?.as_ref()
    }

    /// Counts the index's lives, from 1; 0 before the first.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the share of followed holders that are live with a digest equal to their agent's; 1 without any.
    #[must_use]
    pub fn agreement(&self) -> f64 {
        agreement(self.holders.values().map(|view| &**view))
    }
}

/// Returns the share of followed holders that are live with a digest equal to their agent's; 1 without any.
#[must_use]
pub fn agreement<'a>(holders: impl Iterator<Item = &'a HolderView>) -> f64 {
    let (mut all, mut agreeing) = (0_u32, 0_u32);
    let followed = [Phase::Syncing, Phase::Live, Phase::Repairing, Phase::Quarantined];
    for view in holders.filter(|view| followed.contains(&view.state)) {
        all += 1;
        agreeing += u32::from(view.state == Phase::Live && view.agrees == Some(true));
    }
    if all == 0 { 1.0 } else { f64::from(agreeing) / f64::from(all) }
}

/// Lists the beats last heard, by worker: of several ranks the latest.
pub(crate) fn pulses<'a>(holders: impl Iterator<Item = (&'a Holder, &'a HolderView)>) -> Vec<Pulse> {
    let mut pulses: HashMap<&WorkerId, Pulse> = HashMap::new();
    for (holder, heard) in holders {
        let Some(beat_at) = heard.beat_at else { continue };
        let pulse = Pulse { worker: holder.worker.clone(), beat_at, engine_healthy: heard.engine_healthy };
        let known = pulses.entry(&holder.worker).or_insert_with(|| pulse.clone());
        if pulse.beat_at > known.beat_at {
            *known = pulse;
        }
    }
    pulses.into_values().collect()
}
