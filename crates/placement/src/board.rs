//! What other frontends have outstanding, as they say themselves.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use identity::{Holder, Incarnation};

use crate::gauge::Gauges;

/// How much is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardLimits {
    /// Silence after which a frontend's gauges are dropped.
    pub silence: Duration,
    /// Frontends heard at a time.
    pub frontends_max: usize,
    /// Entries per frontend.
    pub entries_max: usize,
}

impl Default for BoardLimits {
    fn default() -> Self {
        Self { silence: Duration::from_secs(3), frontends_max: 1024, entries_max: 65_536 }
    }
}

/// One entry of a frontend's vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The holder.
    pub holder: Holder,
    /// Grows with every change at that frontend.
    pub version: u64,
    /// The absolute amounts.
    pub gauges: Gauges,
}

/// A frontend's words: some or all of its vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Names the frontend.
    pub frontend: String,
    /// Its life; a later one voids the earlier's vector.
    pub incarnation: Incarnation,
    /// Whether holders without an entry have no load.
    pub whole: bool,
    /// The entries.
    pub entries: Vec<Reading>,
}

/// The newest reading of each peer and holder.
#[derive(Clone, Debug, Default)]
pub struct Board {
    limits: BoardLimits,
    peers: BTreeMap<String, Peer>,
}

#[derive(Clone, Debug)]
struct Peer {
    incarnation: Incarnation,
    heard_at: Duration,
    entries: HashMap<Holder, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    version: u64,
    gauges: Gauges,
    /// A whole vector came without it; kept once more, so that a delayed older entry cannot return.
    absent: bool,
}

impl Board {
    /// Starts with no peers.
    #[must_use]
    pub fn new(limits: BoardLimits) -> Self {
        Self { limits, peers: BTreeMap::new() }
    }

    /// Takes a report; older entries than those known, and reports of earlier lives, change nothing.
    pub fn hear(&mut self, report: Report, now: Duration) {
        let room = self.peers.len() < self.limits.frontends_max || self.peers.contains_key(&report.frontend);
        if !room {
            return;
        }
        let fresh = || Peer { incarnation: report.incarnation, heard_at: now, entries: HashMap::new() };
        let peer = self.peers.entry(report.frontend).or_insert_with(fresh);
        if report.incarnation < peer.incarnation {
            return;
        }
        if report.incarnation > peer.incarnation {
            *peer = fresh();
        }
        peer.heard_at = now;
        peer.take(report.entries, report.whole, self.limits.entries_max);
    }

    /// Drops the frontends that have been silent too long; not to be called while the own link is down, when silence
    /// says nothing of them.
    pub fn expire(&mut self, now: Duration) {
        let silence = self.limits.silence;
        self.peers.retain(|_, peer| now.saturating_sub(peer.heard_at) < silence);
    }

    /// Counts the link's downtime as heard: after an outage every peer gets its full time to speak again.
    pub fn resume(&mut self, now: Duration) {
        for peer in self.peers.values_mut() {
            peer.heard_at = now;
        }
    }

    /// Drops one frontend: its lease is gone.
    pub fn drop_frontend(&mut self, frontend: &str) {
        self.peers.remove(frontend);
    }

    /// Sums the peers' gauges per holder.
    #[must_use]
    pub fn totals(&self) -> HashMap<Holder, Gauges> {
        let mut totals: HashMap<Holder, Gauges> = HashMap::new();
        for (_, holder, gauges) in self.readings() {
            let total = totals.entry(holder.clone()).or_default();
            *total = total.plus(gauges);
        }
        totals
    }

    /// Lists the peers' gauges that are not zero, by frontend.
    pub fn readings(&self) -> impl Iterator<Item = (&str, &Holder, Gauges)> {
        self.peers.iter().flat_map(|(frontend, peer)| {
            let entries = peer.entries.iter().filter(|(_, known)| !known.gauges.is_idle());
            entries.map(move |(holder, known)| (frontend.as_str(), holder, known.gauges))
        })
    }

    /// Counts the peers.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }
}

impl Peer {
    fn take(&mut self, entries: Vec<Reading>, whole: bool, entries_max: usize) {
        if whole {
            self.entries.retain(|_, known| !known.absent);
            for known in self.entries.values_mut() {
                known.absent = true;
            }
        }
        for entry in entries {
            let room = self.entries.len() < entries_max;
            let known = Known { version: entry.version, gauges: entry.gauges, absent: false };
            match self.entries.get_mut(&entry.holder) {
                Some(before) if before.version > known.version => before.absent = false,
                Some(before) => *before = known,
                None if room => drop(self.entries.insert(entry.holder, known)),
                None => {}
            }
        }
        if whole {
            for known in self.entries.values_mut().filter(|known| known.absent) {
                known.gauges = Gauges::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use identity::{Rank, WorkerId};
    use proptest::prelude::*;

    use super::*;

    fn holder(at: u8) -> Holder {
        Holder { worker: WorkerId::new(&format!("w{at}")), rank: Rank(0) }
    }

    fn reading(at: u8, version: u64, active_requests: u32) -> Reading {
        Reading { holder: holder(at), version, gauges: Gauges { active_requests, ..Gauges::default() } }
    }

    fn report(frontend: &str, life: u64, whole: bool, entries: Vec<Reading>) -> Report {
        let incarnation = Incarnation { started_ms: life, nonce: 0 };
        Report { frontend: frontend.to_owned(), incarnation, whole, entries }
    }

    fn active(board: &Board, at: u8) -> u32 {
        board.totals().get(&holder(at)).map_or(0, |gauges| gauges.active_requests)
    }

    #[test]
    fn the_newest_entry_counts() {
        let (mut board, now) = (Board::default(), Duration::ZERO);
        board.hear(report("a", 1, false, vec![reading(0, 5, 3)]), now);
        board.hear(report("a", 1, false, vec![reading(0, 4, 9)]), now);
        board.hear(report("b", 1, false, vec![reading(0, 1, 2)]), now);
        assert_eq!(active(&board, 0), 5);
        board.hear(report("a", 2, false, vec![reading(0, 1, 1)]), now);
        assert_eq!(active(&board, 0), 3, "a later life starts anew");
        board.hear(report("a", 1, true, vec![reading(0, 9, 9)]), now);
        assert_eq!(active(&board, 0), 3, "an earlier one is void");
    }

    #[test]
    fn whole_vectors_zero_what_they_lack() {
        let (mut board, now) = (Board::default(), Duration::ZERO);
        board.hear(report("a", 1, false, vec![reading(0, 5, 3), reading(1, 1, 1)]), now);
        board.hear(report("a", 1, true, vec![reading(1, 1, 1)]), now);
        assert_eq!((active(&board, 0), active(&board, 1)), (0, 1));
        board.hear(report("a", 1, false, vec![reading(0, 4, 9)]), now);
        assert_eq!(active(&board, 0), 0, "a delayed older entry does not return");
        board.hear(report("a", 1, false, vec![reading(0, 6, 2)]), now);
        assert_eq!(active(&board, 0), 2);
    }

    #[test]
    fn silence_drops_a_frontend_unless_the_link_was_down() {
        let mut board = Board::default();
        board.hear(report("a", 1, true, vec![reading(0, 1, 3)]), Duration::ZERO);
        board.resume(Duration::from_secs(60));
        board.expire(Duration::from_secs(62));
        assert_eq!(active(&board, 0), 3);
        board.expire(Duration::from_secs(63));
        assert_eq!((active(&board, 0), board.peers()), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is lost or reordered, one whole vector and quiet make the board true.
        #[test]
        fn a_whole_vector_heals(
            changes in prop::collection::vec((0_u8..4, 0_u32..5), 1..60),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..80),
        ) {
            let (mut board, mut vector) = (Board::default(), [(0_u64, 0_u32); 4]);
            let mut said = Vec::new();
            for (at, count) in changes {
                vector[usize::from(at)] = (vector[usize::from(at)].0 + 1, count);
                said.push(reading(at, vector[usize::from(at)].0, count));
            }
            for (index, whole) in order {
                board.hear(report("a", 1, whole, vec![index.get(&said).clone()]), Duration::ZERO);
            }
            let all = (0..4).zip(vector).filter(|(_, (_, count))| *count > 0);
            let all = all.map(|(at, (version, count))| reading(at, version, count)).collect();
            board.hear(report("a", 1, true, all), Duration::ZERO);
            for at in 0..4 {
                prop_assert_eq!(active(&board, at), vector[usize::from(at)].1);
            }
        }
    }
}
