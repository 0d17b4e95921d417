//! Immutable copies of a holder's set, cut into chunks, that replicas fetch.

use std::time::Duration;

use bytes::Bytes;
use membership::Run;
use wire::sync::{Refusal, Response, Snapshot};

/// How long a copy is kept.
const LIFE: Duration = Duration::from_secs(10);
/// How old a copy may be to be offered to another replica, so that it has time to fetch.
const SHARED: Duration = Duration::from_secs(4);
/// How many copies are kept.
const COPIES_MAX: usize = 3;

#[derive(Debug)]
struct Copy {
    snapshot: Snapshot,
    chunks: Vec<Bytes>,
    made: Duration,
}

/// The copies of one holder's present life.
#[derive(Debug, Default)]
pub(super) struct Copies {
    copies: Vec<Copy>,
}

impl Copies {
    /// Forgets all copies, as at a new life.
    pub(super) fn clear(&mut self) {
        self.copies.clear();
    }

    /// Returns a copy that is young enough to be fetched by one more replica.
    pub(super) fn young(&mut self, now: Duration) -> Option<&Snapshot> {
        self.expire(now);
        let copy = self.copies.iter().rfind(|copy| now.saturating_sub(copy.made) <= SHARED)?;
        Some(&copy.snapshot)
    }

    /// Keeps a copy, in place of the oldest if there are too many.
    pub(super) fn keep(&mut self, snapshot: Snapshot, chunks: Vec<Bytes>, now: Duration) {
        self.expire(now);
        if self.copies.len() >= COPIES_MAX {
            self.copies.remove(0);
        }
        self.copies.push(Copy { snapshot, chunks, made: now });
    }

    /// Returns a chunk's encoded answer.
    pub(super) fn chunk(&mut self, id: u64, index: u32, now: Duration) -> Option<Bytes> {
        self.expire(now);
        let copy = self.copies.iter().find(|copy| copy.snapshot.id == id)?;
        copy.chunks.get(usize::try_from(index).ok()?).cloned()
    }

    fn expire(&mut self, now: Duration) {
        self.copies.retain(|copy| now.saturating_sub(copy.made) <= LIFE);
    }
}

/// Cuts a set into encoded chunks and completes its description; takes time in proportion to the set.
pub(super) fn cut(mut snapshot: Snapshot, runs: Vec<Run>) -> Result<(Snapshot, Vec<Bytes>), Refusal> {
    let chunks = Response::chunks(runs).map_err(|_| Refusal::TooLarge)?;
    snapshot.chunks = u32::try_from(chunks.len()).map_err(|_| Refusal::TooLarge)?;
    Ok((snapshot, chunks))
}

#[cfg(test)]
mod tests {
    use identity::{BlockKey, KeySetDigest};

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn keep(copies: &mut Copies, id: u64, now: Duration) {
        let snapshot = Snapshot { id, seq: id, digest: KeySetDigest::default(), blocks: 1, chunks: 0 };
        let runs = vec![Run { parent: None, keys: vec![BlockKey::new(id)] }];
        let (snapshot, chunks) = cut(snapshot, runs).unwrap();
        assert_eq!(snapshot.chunks, 1);
        copies.keep(snapshot, chunks, now);
    }

    #[test]
    fn copies_are_shared_while_young_and_end_after_ten_seconds() {
        let mut copies = Copies::default();
        keep(&mut copies, 7, s(0));
        assert_eq!(copies.young(s(4)).map(|snapshot| snapshot.id), Some(7));
        assert_eq!(copies.young(s(5)), None);
        assert!(copies.chunk(7, 0, s(10)).is_some());
        assert!(copies.chunk(7, 1, s(10)).is_none());
        assert!(copies.chunk(8, 0, s(10)).is_none());
        assert!(copies.chunk(7, 0, s(11)).is_none());
    }

    #[test]
    fn their_number_is_bounded() {
        let mut copies = Copies::default();
        (0..10).for_each(|id| keep(&mut copies, id, s(0)));
        assert_eq!(copies.copies.len(), COPIES_MAX);
        assert!(copies.chunk(9, 0, s(0)).is_some() && copies.chunk(6, 0, s(0)).is_none());
    }
}
