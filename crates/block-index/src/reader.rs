//! Lookups.

use std::sync::Arc;

use identity::BlockKey;

use crate::matches::{Matches, Taken, TakenMany};
use crate::members::{FEW, PARTIAL};
use crate::runs::{DEAD, Header};
use crate::shared::Shared;
use crate::slots;
use crate::store::common;
use crate::sync::{Ordering, fence};

/// A handle for lookups: any number of them, on any thread, without locks.
///
/// A lookup never waits. It goes over a run again only if the writer finished reshaping that very run meanwhile, so a
/// writer that stands still holds nobody up.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// What happened in one pass over a run.
enum Step<'a> {
    /// This many keys matched, and perhaps a run goes on from there.
    Passed { matched: u32, taken: Taken, next: Option<&'a Header> },
    /// The run was reshaped.
    Reshaped,
    /// The run has left the tree.
    Gone,
}

impl Reader {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Finds how many of `keys` each holder has, counted from the first.
    ///
    /// `keys` are the keys of one prompt's blocks, in order: each names all before it.
    ///
    /// While the writer is at work, each holder's depth is one that it had at some time during the call.
    pub fn matches(&self, keys: &[BlockKey], found: &mut Matches) {
        let _pinned = self.shared.epochs.pin();
        while !self.walk(keys, found) {
            self.shared.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how often lookups had to go over a run again, since the index was made.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.shared.retries.load(Ordering::Relaxed)
    }

    /// Walks down from the root; false if a run left the tree on the way.
    fn walk(&self, keys: &[BlockKey], found: &mut Matches) -> bool {
        let shared = &*self.shared;
        let words = usize::try_from(shared.words.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        found.begin(shared.active.iter().take(words).map(|word| word.load(Ordering::Acquire)));
        let mut rest = keys;
        let mut depth = 0_u32;
        let mut next = keys.first().and_then(|key| shared.find_head(*key)).map(|(_, header)| header);
        while let Some(header) = next {
            match step(shared, header, rest, found) {
                Step::Passed { matched, taken, next: onwards } => {
                    found.enter(taken, depth, matched);
                    depth += matched;
                    rest = rest.get(matched as usize..).unwrap_or_default();
                    if found.is_over() {
                        break;
                    }
                    next = onwards;
                }
                Step::Reshaped => {
                    shared.retries.fetch_add(1, Ordering::Relaxed);
                }
                Step::Gone => return false,
            }
        }
        found.end(depth);
        true
    }
}

/// Takes in one run. The order is what makes the answer exact: shape, then holders, then the way onwards, then shape.
fn step<'a>(shared: &'a Shared, header: &Header, rest: &[BlockKey], found: &mut Matches) -> Step<'a> {
    let shape = header.shape.load(Ordering::Acquire);
    if shape == DEAD {
        return Step::Gone;
    }
    let len = length(shape);
    // Ask for the run that follows before comparing this one: it is the likely way onwards.
    let ahead = rest.get(len as usize).and_then(|key| follow(shared, header, *key));
    let matched = reach(keys_of(shared, header, len), rest);
    let before = found.words.len();
    let taken = take(header, found);
    let onwards = match rest.get(matched as usize) {
        None => None,
        // A run shares at least the key by which it was found.
        Some(_) if matched == 0 => None,
        Some(_) if matched == len && ahead.is_some() => ahead,
        Some(key) => follow(shared, header, *key),
    };
    fence(Ordering::Acquire);
    if header.shape.load(Ordering::Relaxed) == shape {
        return Step::Passed { matched, taken, next: onwards };
    }
    found.words.truncate(before);
    Step::Reshaped
}

/// Takes in a run's holders; bits go to the end of `found.words`.
fn take(header: &Header, found: &mut Matches) -> Taken {
    let Some(many) = header.many() else {
        let mut few = [0; FEW];
        for (word, place) in few.iter_mut().zip(&header.few) {
            *word = place.load(Ordering::Acquire);
        }
        return Taken::Few(few);
    };
    let mut partial = [0; PARTIAL];
    for (word, place) in partial.iter_mut().zip(many.partial()) {
        *word = place.load(Ordering::Acquire);
    }
    let from = found.words.len();
    found.words.resize(from + found.width, 0);
    let places = found.words.get_mut(from..).unwrap_or_default();
    for (place, pair) in places.iter_mut().zip(many.bits().chunks_exact(2)) {
        if let [low, high] = pair {
            *place = u64::from(high.load(Ordering::Acquire)) << 32 | u64::from(low.load(Ordering::Acquire));
        }
    }
    Taken::Many(TakenMany { from, partial })
}

/// Counts how many keys a run and a prompt have in common, from the first, which they share.
///
/// A key names everything before it, so where two lists agree they agree in all that comes before: the last keys tell
/// for the whole, and what differs is found by halving until the rest is a few cache lines.
fn reach(run: &[BlockKey], rest: &[BlockKey]) -> u32 {
    const SCAN: usize = 64;
    let mut len = run.len().min(rest.len());
    let same = |at: usize| run.get(at) == rest.get(at);
    if len > 0 && same(len - 1) {
        return u32::try_from(len).unwrap_or(u32::MAX);
    }
    let mut from = 0;
    while len - from > SCAN {
        let middle = from + (len - from) / 2;
        if same(middle) {
            from = middle;
        } else {
            len = middle;
        }
    }
    let (run, rest) = (run.get(from..len).unwrap_or_default(), rest.get(from..len).unwrap_or_default());
    u32::try_from(from).unwrap_or(u32::MAX) + common(run, rest)
}

#[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
const fn length(shape: u64) -> u32 {
    shape as u32
}

/// Finds the run that begins with a key, first where the run before it says.
fn follow<'a>(shared: &'a Shared, header: &Header, key: BlockKey) -> Option<&'a Header> {
    let guess = header.next.load(Ordering::Acquire).checked_sub(1);
    let guessed = guess.and_then(|run| shared.run_at(run, key));
    guessed.or_else(|| shared.find_head(key).map(|(_, header)| header))
}

/// Returns a run's keys, good for as long as the caller is pinned.
#[expect(unsafe_code, reason = "keys are published by number and length")]
fn keys_of<'a>(shared: &'a Shared, header: &Header, len: u32) -> &'a [BlockKey] {
    let keys = slots::address(&shared.keys, header.slot.load(Ordering::Relaxed));
    if keys.is_null() {
        return &[];
    }
    // SAFETY: `len` was loaded (acquire) from the shape of this run, whose keys up to that length lie in one chunk, were
    // written before it was published and are not written again, nor the chunk freed, before the grace of their slots,
    // which the caller's pin holds off.
    unsafe { std::slice::from_raw_parts(keys, len as usize) }
}
