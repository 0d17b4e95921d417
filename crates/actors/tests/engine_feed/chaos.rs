//! Random histories of an engine, its feed and its agent, and what must hold once everything is quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use identity::BlockKey;
use tokio::time::sleep;

use crate::rig::{Agent, Replica, Rig, keys, removed, stored};

/// Marsaglia's xorshift: the same seed gives the same history.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 16) % u64::from(sides)).unwrap_or(0)
    }

    fn pick(&mut self, length: usize) -> usize {
        let sides = u32::try_from(length).unwrap_or(u32::MAX);
        usize::try_from(self.roll(sides)).unwrap_or(0)
    }
}

/// What the engine really has: blocks by number, each behind another or at the beginning of a prompt.
#[derive(Default)]
struct Cache(BTreeMap<u32, Option<u32>>);

impl Cache {
    /// The keys of all blocks whose whole prefix is cached.
    fn keys(&self) -> BTreeSet<BlockKey> {
        self.0.keys().filter_map(|block| keys(&self.prompt(*block)?).last().copied()).collect()
    }

    /// Caches a block behind one that can be used, or at the beginning of a prompt.
    fn store(&mut self, block: u32, dice: &mut Dice) -> bytes::Bytes {
        let parents: Vec<u32> =
            self.0.keys().copied().filter(|block| self.prompt(*block).is_some()).collect();
        let parent = parents.get(dice.pick(1 + 2 * parents.len())).copied();
        self.0.insert(block, parent);
        stored(parent, &[block])
    }

    /// Evicts a block, whatever stands behind it.
    fn remove(&mut self, dice: &mut Dice) -> Option<bytes::Bytes> {
        let block = self.0.keys().copied().nth(dice.pick(self.0.len().max(1)))?;
        self.0.remove(&block);
        Some(removed(&[block]))
    }

    /// The blocks up to and including one; none where one of them is not cached.
    fn prompt(&self, block: u32) -> Option<Vec<u32>> {
        let mut prompt = match self.0.get(&block)? {
            Some(parent) => self.prompt(*parent)?,
            None => Vec::new(),
        };
        prompt.push(block);
        Some(prompt)
    }
}

/// Plays a history with an engine that buffers `buffer_max` batches; answers truth, and what a replica knows.
async fn play(seed: u64, buffer_max: usize) -> (BTreeSet<BlockKey>, BTreeSet<BlockKey>) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let rig = Rig::new(buffer_max);
    let replica = rig.replica().await;
    let mut agent = Some(rig.agent(seed).await);
    let (mut cache, mut fresh, mut started_s) = (Cache::default(), 0_u32, 1000);
    for turn in 0..120_u64 {
        match dice.roll(100) {
            0..=44 => {
                fresh += 1;
                let payload = cache.store(fresh, &mut dice);
                deliver(&rig, payload, dice.roll(8) == 0);
            }
            45..=69 => {
                if let Some(payload) = cache.remove(&mut dice) {
                    deliver(&rig, payload, dice.roll(8) == 0);
                }
            }
            70..=89 => sleep(Duration::from_millis(u64::from(dice.roll(4000)))).await,
            90..=92 => {
                started_s += 10;
                cache = Cache::default();
                *rig.started_s.lock() = Some(started_s);
                if dice.roll(2) == 0 { rig.publisher.restart() } else { rig.publisher.restart_unnoticed() }
            }
            93..=95 => {
                if let Some(agent) = &agent {
                    let _was_there = agent.node.kill("engine-feed/m/1/w0/0");
                }
            }
            96..=97 => {
                if let Some(agent) = agent.take() {
                    agent.crash().await;
                }
            }
            _ => {
                if agent.is_none() {
                    // A process takes time to start.
                    sleep(Duration::from_millis(50)).await;
                    agent = Some(rig.agent(seed ^ (turn << 32)).await);
                }
            }
        }
    }
    let agent = match agent {
        Some(agent) => agent,
        None => {
            sleep(Duration::from_millis(50)).await;
            rig.agent(seed ^ 0xffff).await
        }
    };
    (cache.keys(), learned(agent, replica).await)
}

/// Waits until everything is quiet, and answers what a replica then knows.
async fn learned(agent: Agent, mut replica: Replica) -> BTreeSet<BlockKey> {
    // Longer than silence is trusted, and than an actor's restart is put off.
    sleep(Duration::from_secs(70)).await;
    let status = agent.handle.status();
    assert!(status.caught_up, "{status:?}");
    replica.agrees(|beat| Some(beat.incarnation) == status.incarnation && beat.seq == status.seq).await;
    agent.crash().await;
    replica.set()
}

fn deliver(rig: &Rig, payload: bytes::Bytes, lost: bool) {
    if lost {
        rig.publisher.lose(payload);
    } else {
        rig.publish(payload);
    }
}

#[tokio::test(start_paused = true)]
async fn with_replay_everything_is_known_in_the_end() {
    for seed in 0..60 {
        let (truth, known) = play(seed, 1000).await;
        assert_eq!(known, truth, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_little_replay_nothing_false_is_known() {
    for seed in 0..60 {
        let (truth, known) = play(seed, 3).await;
        assert!(known.is_subset(&truth), "seed {seed}: {:?} is not there", known.difference(&truth));
    }
}
