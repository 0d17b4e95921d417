//! Copies of holders' sets that joining replicas fetch.

use std::time::Duration;

use bytes::Bytes;

/// How long a copy is kept.
const LIFE: Duration = Duration::from_secs(10);
/// How many copies are kept.
const COPIES_MAX: usize = 16;

#[derive(Debug)]
struct Copy {
    id: u64,
    chunks: Vec<Bytes>,
    made: Duration,
    /// Whether its last chunk was asked for: it stays for those that got lost, unless others need the room.
    fetched: bool,
}

/// The copies of all holders.
#[derive(Debug, Default)]
pub(super) struct Copies(Vec<Copy>);

impl Copies {
    /// Tells whether there is room for one more beside those that are being made.
    pub(super) fn has_room(&mut self, being_made: usize, now: Duration) -> bool {
        self.expire(now);
        self.0.iter().filter(|copy| !copy.fetched).count() + being_made < COPIES_MAX
    }

    /// Keeps a copy, in place of the oldest that was fetched if there are too many.
    pub(super) fn keep(&mut self, id: u64, chunks: Vec<Bytes>, now: Duration) {
        self.expire(now);
        if self.0.len() >= COPIES_MAX {
            let given_up = self.0.iter().position(|copy| copy.fetched).unwrap_or(0);
            self.0.remove(given_up);
        }
        let fetched = chunks.is_empty();
        self.0.push(Copy { id, chunks, made: now, fetched });
    }

    /// Returns a chunk's encoded answer.
    pub(super) fn chunk(&mut self, id: u64, index: u32, now: Duration) -> Option<Bytes> {
        self.expire(now);
        let index = usize::try_from(index).ok()?;
        let copy = self.0.iter_mut().find(|copy| copy.id == id)?;
        copy.fetched |= index + 1 == copy.chunks.len();
        copy.chunks.get(index).cloned()
    }

    fn expire(&mut self, now: Duration) {
        self.0.retain(|copy| now.saturating_sub(copy.made) <= LIFE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn unfetched_copies_are_bounded_and_end_by_time() {
        let mut copies = Copies::default();
        (0..16).for_each(|id| copies.keep(id, vec![Bytes::new(), Bytes::new()], s(0)));
        assert!(!copies.has_room(0, s(1)));
        assert!(copies.chunk(3, 0, s(1)).is_some() && !copies.has_room(0, s(1)), "not fetched yet");
        assert!(copies.chunk(3, 1, s(1)).is_some() && copies.chunk(3, 2, s(1)).is_none());
        assert!(copies.has_room(0, s(1)) && !copies.has_room(1, s(1)));
        copies.keep(99, vec![Bytes::new()], s(2));
        assert!(copies.chunk(3, 0, s(2)).is_none(), "gave way");
        assert!(copies.chunk(4, 0, s(2)).is_some() && copies.chunk(99, 0, s(2)).is_some());
        assert!(copies.chunk(4, 0, s(11)).is_none() && copies.has_room(0, s(11)));
    }
}
