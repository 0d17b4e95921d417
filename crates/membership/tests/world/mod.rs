//! One agent, some replicas and the weather between them.

mod agent;
mod index;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use identity::{BlockKey, Holder, Incarnation, KeySetDigest, Rank, WorkerId};
use membership::replica::{Answer, Ask, Effect, Event, Phase, Policy, Replicas};

use agent::{Agent, runs_of};
use index::Index;

const REPLICAS: usize = 3;
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// A prefix-closed set: key to parent.
pub(crate) type Keys = BTreeMap<BlockKey, Option<BlockKey>>;

pub(crate) fn digest_of(keys: &Keys) -> KeySetDigest {
    let mut digest = KeySetDigest::default();
    keys.keys().for_each(|key| digest.add(*key));
    digest
}

/// Seeded chance (`SplitMix64`).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % below
    }

    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.roll(1000) < permille
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// How bad things are, in chances of a thousand per message or step.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) drop: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    pub(crate) incident: u64,
    pub(crate) change: u64,
}

pub(crate) const STORM: Weather = Weather { drop: 200, duplicate: 100, delay: 200, incident: 4, change: 300 };
pub(crate) const CALM: Weather = Weather { drop: 0, duplicate: 0, delay: 0, incident: 0, change: 100 };

struct Node {
    replicas: Replicas,
    index: Index,
    cut_until: Duration,
}

/// Something on its way to a node, ordered by arrival.
struct Parcel {
    at: Duration,
    order: u64,
    node: usize,
    event: Event,
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Parcel {}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Parcel {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(crate) struct World {
    pub(crate) now: Duration,
    dice: Dice,
    agent: Agent,
    nodes: Vec<Node>,
    parcels: BinaryHeap<Reverse<Parcel>>,
    sent: u64,
    holder: Holder,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Duration::ZERO;
        let node = |index: usize| Node {
            replicas: Replicas::new(Policy::default(), seed ^ index as u64, now),
            index: Index::default(),
            cut_until: now,
        };
        Self {
            now,
            dice: Dice(seed),
            agent: Agent::new(),
            nodes: (0..REPLICAS).map(node).collect(),
            parcels: BinaryHeap::new(),
            sent: 0,
            holder: Holder { worker: WorkerId::new("w"), rank: Rank(0) },
        }
    }

    fn send(&mut self, node: usize, event: Event, after: Duration) {
        self.sent += 1;
        self.parcels.push(Reverse(Parcel { at: self.now + after, order: self.sent, node, event }));
    }

    fn publish(&mut self, event: &Event, weather: Weather) {
        for node in 0..REPLICAS {
            if self.nodes[node].cut_until > self.now {
                continue;
            }
            let copies = 1 + u64::from(self.dice.chance(weather.duplicate));
            for _ in 0..copies {
                if !self.dice.chance(weather.drop) {
                    let late = if self.dice.chance(weather.delay) { self.dice.roll(400) } else { 1 };
                    self.send(node, event.clone(), Duration::from_millis(late));
                }
            }
        }
    }

    fn perform(&mut self, node: usize, effects: Vec<(Holder, Effect)>, weather: Weather) {
        for (_, effect) in effects {
            match effect {
                Effect::Index(op) => {
                    if let Some((ticket, digest)) = self.nodes[node].index.apply(op) {
                        let after = Duration::from_millis(self.dice.roll(30));
                        self.send(node, Event::Checked { ticket, digest }, after);
                    }
                }
                Effect::Ask { ticket, ask } => {
                    let lost = self.nodes[node].cut_until > self.now
                        || self.agent.down_until > self.now
                        || self.dice.chance(weather.drop);
                    let (answer, after) = if let Ask::Peer { incarnation } = ask {
                        (self.peer(node, incarnation), 1 + self.dice.roll(20))
                    } else if lost {
                        (Answer::Failed, 500)
                    } else {
                        (self.agent.answer(&ask), 1 + self.dice.roll(20))
                    };
                    self.send(node, Event::Answered { ticket, answer }, Duration::from_millis(after));
                }
            }
        }
    }

    /// Asks the other replicas, of which a live one may answer; what it has may be old, or wrong, by now.
    fn peer(&mut self, node: usize, incarnation: Incarnation) -> Answer {
        let serves = |peer: &&Node| {
            let status = peer.replicas.status(&self.holder);
            status.is_some_and(|status| status.phase == Phase::Live && status.agrees == Some(true))
                && peer.index.life == Some(incarnation)
        };
        let others = self.nodes.iter().enumerate().filter(|(number, _)| *number != node);
        let peer = others.map(|(_, peer)| peer).find(serves);
        let Some(index) = peer.map(|peer| &peer.index) else { return Answer::NoPeer };
        let mut runs = runs_of(&index.keys, |_| true);
        if self.dice.chance(100) {
            runs.pop();
        }
        Answer::Snapshot { seq: index.seq, digest: digest_of(&index.keys), runs }
    }

    fn incident(&mut self) {
        let node = usize::try_from(self.dice.roll(REPLICAS as u64)).unwrap();
        let until = self.now + Duration::from_millis(self.dice.roll(8000));
        match self.dice.roll(7) {
            0 => self.agent.new_engine(until),
            1 => self.agent.new_without_checkpoint(until),
            2 => self.agent.new_with_old_checkpoint(self.dice.roll(10)),
            3 => self.nodes[node].cut_until = until,
            // A new index.
            4 => {
                self.nodes[node].index.keys.clear();
                let effects = self.nodes[node].replicas.step_all(&Event::IndexReset, self.now);
                self.perform(node, effects, STORM);
            }
            // A new process: nothing is known, and others may be asked.
            5 => {
                let mut replicas = Replicas::new(Policy::default(), self.dice.roll(u64::MAX), self.now);
                let carded = BTreeMap::from([(self.holder.clone(), self.agent.life)]);
                let effects = replicas.set_carded(carded, self.now);
                self.nodes[node].replicas = replicas;
                self.nodes[node].index = Index::default();
                self.perform(node, effects, STORM);
            }
            // A new replicator over the same index.
            _ => {
                let mut replicas = Replicas::new(Policy::default(), self.dice.roll(u64::MAX), self.now);
                if let Some(life) = self.nodes[node].index.life {
                    replicas.step(&self.holder, Event::Known(life), self.now);
                }
                self.nodes[node].replicas = replicas;
            }
        }
    }

    pub(crate) fn run(&mut self, lasting: Duration, weather: Weather) {
        let until = self.now + lasting;
        while self.now < until {
            self.now += STEP;
            if self.dice.chance(weather.incident) {
                self.incident();
            }
            if self.agent.down_until <= self.now {
                self.agent_acts(weather);
            }
            while let Some(Reverse(parcel)) = self.parcels.peek()
                && parcel.at <= self.now
            {
                let Some(Reverse(parcel)) = self.parcels.pop() else { break };
                let effects = self.nodes[parcel.node].replicas.step(&self.holder, parcel.event, self.now);
                self.perform(parcel.node, effects, weather);
            }
            for node in 0..REPLICAS {
                self.node_acts(node, weather);
            }
        }
    }

    fn agent_acts(&mut self, weather: Weather) {
        if self.dice.chance(weather.change) {
            let delta = self.agent.change(&mut self.dice);
            self.publish(&Event::Delta(delta), weather);
        }
        if self.now.as_millis().is_multiple_of(1000) {
            let beat = self.agent.beat();
            self.publish(&Event::Beat(beat), weather);
        }
    }

    fn node_acts(&mut self, node: usize, weather: Weather) {
        if self.nodes[node].cut_until == self.now {
            let effects = self.nodes[node].replicas.step_all(&Event::LinkUp, self.now);
            self.perform(node, effects, weather);
        }
        if self.now.as_millis().is_multiple_of(50) {
            let effects = self.nodes[node].replicas.tick(self.now);
            self.perform(node, effects, weather);
        }
    }

    /// Ends all outages; beats come within a second.
    pub(crate) fn heal(&mut self) {
        self.agent.down_until = self.now;
        for node in &mut self.nodes {
            if node.cut_until > self.now {
                node.cut_until = self.now + STEP;
            }
        }
    }

    pub(crate) fn asks(&self) -> usize {
        self.nodes.iter().map(|node| node.replicas.asks()).sum()
    }

    /// Compares every replica with the agent.
    pub(crate) fn converged(&self) -> Result<(), String> {
        for (number, node) in self.nodes.iter().enumerate() {
            let status = node.replicas.status(&self.holder);
            let status = status.ok_or_else(|| format!("replica {number} knows nothing"))?;
            if node.index.keys != self.agent.keys {
                return Err(format!("replica {number} differs: {} keys, {status:?}", node.index.keys.len()));
            }
            let facts = (status.phase, status.incarnation, status.seq, status.agrees);
            if facts != (Phase::Live, Some(self.agent.life), self.agent.seq, Some(true)) {
                return Err(format!("replica {number} stands at {facts:?}, agent at {}", self.agent.seq));
            }
            if node.index.seq != self.agent.seq || node.index.life != Some(self.agent.life) {
                return Err(format!("index {number} stands at {:?} {}", node.index.life, node.index.seq));
            }
        }
        Ok(())
    }
}
