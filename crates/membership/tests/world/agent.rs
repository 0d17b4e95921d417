//! An engine and the agent that speaks for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use identity::{BlockKey, Incarnation, KeySetDigest, ModelName, Rank, WorkerId};
use membership::replica::{Answer, Ask};
use membership::{Beat, Change, Delta, Ring, Run};

use super::{Dice, Keys, digest_of};

pub(crate) struct Agent {
    pub(crate) life: Incarnation,
    pub(crate) seq: u64,
    pub(crate) keys: Keys,
    pub(crate) down_until: Duration,
    ring: Ring,
}

impl Agent {
    pub(crate) fn new() -> Self {
        let life = Incarnation { started_ms: 1, nonce: 0 };
        Self { life, seq: 0, keys: Keys::new(), down_until: Duration::ZERO, ring: Ring::new(50, usize::MAX) }
    }

    pub(crate) fn new_engine(&mut self, until: Duration) {
        self.life.started_ms += 1;
        (self.seq, self.keys, self.down_until) = (0, Keys::new(), until);
        self.ring.clear();
    }

    /// It learns the engine's blocks again, and numbers far ahead.
    pub(crate) fn new_without_checkpoint(&mut self, until: Duration) {
        self.seq += 1_000_000;
        self.down_until = until;
        self.ring.clear();
    }

    pub(crate) fn new_with_old_checkpoint(&mut self, back: u64) {
        self.seq -= back.min(self.seq);
        self.ring.clear();
    }

    fn delta(&mut self, change: Change) -> Delta {
        self.seq += 1;
        let delta = Delta {
            scheme: "sl1".to_owned(),
            model: ModelName::new("m"),
            worker: WorkerId::new("w"),
            rank: Rank(0),
            incarnation: self.life,
            seq: self.seq,
            changes: vec![change],
        };
        self.ring.push(Arc::new(delta.clone()));
        delta
    }

    pub(crate) fn change(&mut self, dice: &mut Dice) -> Delta {
        if dice.chance(3) {
            self.keys.clear();
            return self.delta(Change::Cleared);
        }
        let parents: BTreeSet<BlockKey> = self.keys.values().copied().flatten().collect();
        let leaves: Vec<BlockKey> = self.keys.keys().filter(|key| !parents.contains(key)).copied().collect();
        if !leaves.is_empty() && (dice.chance(400) || self.keys.len() > 200) {
            let leaf = dice.pick(&leaves);
            self.keys.remove(&leaf);
            return self.delta(Change::Removed { keys: vec![leaf] });
        }
        let held: Vec<BlockKey> = self.keys.keys().copied().collect();
        let parent = (!held.is_empty() && dice.chance(700)).then(|| dice.pick(&held));
        let keys: Vec<BlockKey> = (0..=dice.roll(4)).map(|_| BlockKey::new(dice.roll(u64::MAX))).collect();
        let mut above = parent;
        for key in &keys {
            self.keys.insert(*key, above);
            above = Some(*key);
        }
        self.delta(Change::Stored { parent, keys, media: vec![] })
    }

    pub(crate) fn beat(&self) -> Beat {
        Beat {
            scheme: "sl1".to_owned(),
            model: ModelName::new("m"),
            worker: WorkerId::new("w"),
            rank: Rank(0),
            incarnation: self.life,
            seq: self.seq,
            blocks: self.keys.len() as u64,
            digest: digest_of(&self.keys).fold(),
            running: 0,
            waiting: 0,
            kv_usage: 0.0,
            engine_healthy: true,
            coverage: 1.0,
        }
    }

    pub(crate) fn answer(&self, ask: &Ask) -> Answer {
        let (Ask::Range { incarnation, .. }
        | Ask::Buckets { incarnation, .. }
        | Ask::Peer { incarnation }
        | Ask::Digest { incarnation }
        | Ask::Succeed { silent: incarnation }
        | Ask::Snapshot { incarnation }) = ask;
        if *incarnation != self.life {
            return Answer::Incarnation(self.life);
        }
        let digest = digest_of(&self.keys);
        match ask {
            Ask::Range { from, .. } => match self.ring.from(*from) {
                Some(deltas) => Answer::Range(deltas.take(20).map(|delta| (**delta).clone()).collect()),
                None => Answer::Forgotten,
            },
            Ask::Buckets { digest: theirs, .. } => {
                let buckets: Vec<u8> = digest.differing(theirs).collect();
                if buckets.len() > 60 {
                    return Answer::TooLarge;
                }
                let runs = self.runs(|key| buckets.contains(&KeySetDigest::bucket_of(key)));
                Answer::Buckets { seq: self.seq, digest, buckets, runs }
            }
            Ask::Peer { .. } => Answer::NoPeer,
            Ask::Succeed { .. } => Answer::Incarnation(self.life),
            Ask::Digest { .. } => Answer::Digest { seq: self.seq, digest },
            Ask::Snapshot { .. } => Answer::Snapshot { seq: self.seq, digest, runs: self.runs(|_| true) },
        }
    }

    fn runs(&self, wanted: impl Fn(BlockKey) -> bool) -> Vec<Run> {
        runs_of(&self.keys, wanted)
    }
}

/// Lists keys as runs of one, parents first.
pub(crate) fn runs_of(keys: &Keys, wanted: impl Fn(BlockKey) -> bool) -> Vec<Run> {
    let depth = |key: BlockKey| std::iter::successors(Some(key), |key| keys[key]).count();
    let mut ordered: Vec<(usize, BlockKey)> = keys.keys().map(|key| (depth(*key), *key)).collect();
    ordered.sort_unstable();
    let wanted = ordered.into_iter().filter(|(_, key)| wanted(*key));
    wanted.map(|(_, key)| Run { parent: keys[&key], keys: vec![key] }).collect()
}
