//! Where a reader stands in an engine's feed: what to do with a batch, with a replay, and with silence.
//!
//! ```text
//!            batch = last + 1            ┌──────────┐ replay begins with `last`, same payload
//!          ┌──────────────────┐          │          ▼
//! unknown ─┴──► following ────┴─ gap, lower number, silence ──► replay from `last` ──┬──► following
//!    │              ▲                                                                 ├──► another engine
//!    └─ replay from 0 ┘                                                               └──► lost
//! ```

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64;

/// How many batches are remembered to tell a late duplicate from another engine's batch.
const RECENT_MAX: usize = 4096;

/// What to do with a batch that came live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Apply it; the cursor has moved.
    Apply,
    /// It was applied before: drop it.
    Duplicate,
    /// It does not follow: ask for a replay from `from`, inclusive, and hand it to [`Cursor::on_replay`].
    Replay {
        /// First sequence number to ask for.
        from: u64,
    },
}

/// What a replay says of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same engine: apply the batches from index `skip` on.
    Continues {
        /// Batches at the front that were applied before.
        skip: usize,
    },
    /// Another engine process: begin a new incarnation, then replay from 0.
    OtherEngine,
    /// The engine no longer has what was missed: forget everything, then apply all batches of the replay.
    Lost {
        /// First sequence number that the engine still has.
        first: u64,
    },
}

/// A position in a feed.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// Number and payload hash of the latest batches, the last applied one at the back.
    recent: VecDeque<(u64, u64)>,
}

/// A cursor as it is checkpointed: number and payload hash of the last applied batch.
pub type Mark = (u64, u64);

impl Cursor {
    /// Stands before a feed of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stands where a checkpoint was made.
    #[must_use]
    pub fn at(mark: Option<Mark>) -> Self {
        Self { recent: mark.into_iter().collect() }
    }

    /// Returns the last applied batch.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        self.recent.back().copied()
    }

    /// Returns where a replay has to begin: at the last applied batch, which proves that the engine is the same.
    #[must_use]
    pub fn replay_from(&self) -> u64 {
        self.mark().map_or(0, |(seq, _)| seq)
    }

    /// Judges a live batch.
    pub fn on_batch(&mut self, seq: u64, payload: &[u8]) -> Step {
        let hash = xxh3_64(payload);
        let expected = self.mark().map_or(0, |(last, _)| last.saturating_add(1));
        if seq == expected {
            self.advance(seq, payload);
            return Step::Apply;
        }
        if seq < expected && self.recent.iter().rev().any(|mark| *mark == (seq, hash)) {
            return Step::Duplicate;
        }
        Step::Replay { from: self.replay_from() }
    }

    /// Judges a replay that was asked for from [`Cursor::replay_from`]; moves nothing.
    #[must_use]
    pub fn on_replay<'a>(&self, mut batches: impl Iterator<Item = (u64, &'a [u8])>) -> Verdict {
        let first = batches.next();
        match (self.mark(), first) {
            (None, None | Some((0, _))) => Verdict::Continues { skip: 0 },
            (None, Some((first, _))) => Verdict::Lost { first },
            (Some(_), None) => Verdict::OtherEngine,
            (Some((last, hash)), Some((seq, payload))) if seq == last => {
                if xxh3_64(payload) == hash {
                    Verdict::Continues { skip: 1 }
                } else {
                    Verdict::OtherEngine
                }
            }
            // The engine's buffer has just moved past `last`, without a hole.
            (Some((last, _)), Some((seq, _))) if seq == last.saturating_add(1) => {
                Verdict::Continues { skip: 0 }
            }
            (Some((last, _)), Some((first, _))) if first > last => Verdict::Lost { first },
            (Some(_), Some(_)) => Verdict::OtherEngine,
        }
    }

    /// Moves behind a batch that is applied, whatever its number.
    pub fn advance(&mut self, seq: u64, payload: &[u8]) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, xxh3_64(payload)));
    }

    /// Stands before a feed of which nothing is known, again.
    pub fn reset(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cursor behind batches `0..=last` of engine `a`.
    fn behind(last: u64) -> Cursor {
        let mut cursor = Cursor::new();
        (0..=last).for_each(|seq| assert_eq!(cursor.on_batch(seq, &payload('a', seq)), Step::Apply));
        cursor
    }

    fn payload(engine: char, seq: u64) -> Vec<u8> {
        format!("{engine}{seq}").into_bytes()
    }

    #[test]
    fn live_batches_are_judged_by_number_and_payload() {
        for (engine, seq, expected) in [
            ('a', 10, Step::Apply),
            ('a', 9, Step::Duplicate),
            ('a', 3, Step::Duplicate),
            ('a', 11, Step::Replay { from: 9 }),
            ('b', 9, Step::Replay { from: 9 }),
            ('b', 0, Step::Replay { from: 9 }),
        ] {
            assert_eq!(behind(9).on_batch(seq, &payload(engine, seq)), expected, "{engine}{seq}");
        }
        assert_eq!(Cursor::new().on_batch(0, b""), Step::Apply);
        assert_eq!(Cursor::new().on_batch(7, b""), Step::Replay { from: 0 });
    }

    #[test]
    fn replays_tell_engines_apart() {
        let check = |cursor: &Cursor, engine, seqs: std::ops::Range<u64>, expected| {
            let batches: Vec<_> = seqs.clone().map(|seq| (seq, payload(engine, seq))).collect();
            let verdict = cursor.on_replay(batches.iter().map(|(seq, payload)| (*seq, &payload[..])));
            assert_eq!(verdict, expected, "{engine} {seqs:?}");
        };
        let fresh = Cursor::new();
        check(&fresh, 'a', 0..0, Verdict::Continues { skip: 0 });
        check(&fresh, 'a', 0..3, Verdict::Continues { skip: 0 });
        check(&fresh, 'a', 5..8, Verdict::Lost { first: 5 });
        let cursor = behind(9);
        check(&cursor, 'a', 9..12, Verdict::Continues { skip: 1 });
        check(&cursor, 'a', 10..12, Verdict::Continues { skip: 0 });
        check(&cursor, 'a', 11..12, Verdict::Lost { first: 11 });
        check(&cursor, 'b', 9..12, Verdict::OtherEngine);
        check(&cursor, 'b', 0..0, Verdict::OtherEngine);
        let restored = Cursor::at(cursor.mark());
        check(&restored, 'a', 9..12, Verdict::Continues { skip: 1 });
    }

    #[test]
    fn memory_of_batches_is_bounded() {
        let cursor = behind(2 * RECENT_MAX as u64);
        assert_eq!(cursor.recent.len(), RECENT_MAX);
    }
}
