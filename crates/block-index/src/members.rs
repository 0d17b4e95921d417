//! Who holds how much of a run, in a form that a reader can take in at any moment.
//!
//! A holder is in a run with a *cutoff*: how many of the run's blocks it has, from the first. Up to eight holders sit in
//! the run's own cache line, one word each. More of them are a [`Many`]: a bit for each that has the whole run, and a
//! word for each of up to fifteen that have its beginning. A word is the holder plus one and the cutoff, 19 and 13 bits.
//!
//! Every change of one holder is one store, so a reader sees each holder as it was before or after. The one change that
//! takes two (between the bit and the word) replaces the `Many` by a copy.

use crate::limits::HolderId;
use crate::sync::{AtomicU32, Ordering, own_u32};

/// Holders in a run's own cache line.
pub(crate) const FEW: usize = if cfg!(loom) { 2 } else { 8 };

/// Holders in a `Many` that may have a beginning only.
pub(crate) const PARTIAL: usize = if cfg!(loom) { 2 } else { 15 };

/// A word of nobody.
pub(crate) const NOBODY: u32 = 0;

/// Largest number of holders that words can tell apart.
pub(crate) const HOLDERS_MAX: u32 = (1 << (32 - CUTOFF_BITS)) - 1;

const CUTOFF_BITS: u32 = 13;

/// Packs a holder and its cutoff.
pub(crate) const fn pack(holder: HolderId, cutoff: u32) -> u32 {
    (holder.0 + 1) << CUTOFF_BITS | cutoff
}

/// Takes a word apart that is not `NOBODY`.
pub(crate) const fn unpack(word: u32) -> (HolderId, u32) {
    (HolderId((word >> CUTOFF_BITS).wrapping_sub(1)), word & ((1 << CUTOFF_BITS) - 1))
}

/// Holders of a run as words and bits: `[count of bit words][PARTIAL words][bits, 32 a word …]`, one allocation behind a
/// thin pointer, whose first cache line has the count and the words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many<'a>(&'a [AtomicU32]);

/// A copy of a `Many`, to change and publish.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) bits: Vec<u32>,
    pub(crate) partial: Vec<(HolderId, u32)>,
}

impl<'a> Many<'a> {
    /// Allocates one from a draft whose partial holders fit, for [`Many::at`] and [`Many::free`].
    pub(crate) fn allocate(draft: &Draft) -> *mut AtomicU32 {
        debug_assert!(draft.partial.len() <= PARTIAL);
        // An even number, so that readers take in pairs.
        let count = draft.bits.len().next_multiple_of(2);
        let bits = draft.bits.iter().copied().chain(std::iter::repeat(0)).take(count);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let partial = draft.partial.iter().map(|(holder, cutoff)| pack(*holder, *cutoff));
        let partial = partial.chain(std::iter::repeat(NOBODY)).take(PARTIAL);
        let words = std::iter::once(count).chain(partial).chain(bits);
        let words: Box<[AtomicU32]> = words.map(AtomicU32::new).collect();
        Box::into_raw(words).cast()
    }

    /// Views the one behind a pointer; `None` for null.
    ///
    /// # Safety
    /// The pointer is null or from [`Many::allocate`], and not freed while the view is in use.
    #[expect(unsafe_code, reason = "published by pointer")]
    pub(crate) unsafe fn at(pointer: *const AtomicU32) -> Option<Self> {
        // SAFETY: as promised by the caller; the count is never changed after allocation.
        let count = unsafe { pointer.as_ref() }?.load(Ordering::Relaxed);
        // SAFETY: that many words were allocated.
        Some(Self(unsafe { std::slice::from_raw_parts(pointer, 1 + PARTIAL + count as usize) }))
    }

    /// Frees the one behind a pointer; null does nothing.
    ///
    /// # Safety
    /// The pointer is null or from [`Many::allocate`], freed once, and nobody can reach it any more.
    #[expect(unsafe_code, reason = "takes back what was published by pointer")]
    pub(crate) unsafe fn free(pointer: *mut AtomicU32) {
        // SAFETY: as promised by the caller.
        let Some(many) = (unsafe { Many::at(pointer) }) else { return };
        let words = std::ptr::slice_from_raw_parts_mut(pointer, many.0.len());
        // SAFETY: the slice is the one that `allocate` turned into a pointer.
        drop(unsafe { Box::from_raw(words) });
    }

    /// Bytes allocated.
    pub(crate) const fn bytes(self) -> u64 {
        self.0.len() as u64 * 4
    }

    /// The words of holders that may have a beginning only.
    pub(crate) fn partial(self) -> &'a [AtomicU32] {
        self.0.get(1..=PARTIAL).unwrap_or_default()
    }

    /// The bits of holders that have the whole run, by id.
    pub(crate) fn bits(self) -> &'a [AtomicU32] {
        self.0.get(1 + PARTIAL..).unwrap_or_default()
    }

    /// Takes a copy. Only the writer calls it.
    pub(crate) fn draft(self) -> Draft {
        let bits = self.bits().iter().map(own_u32).collect();
        Draft { bits, partial: members(self.partial()).collect() }
    }

    /// Tells whether a holder has its bit.
    pub(crate) fn has_bit(self, holder: HolderId) -> bool {
        let word = self.bits().get(holder.index() / 32);
        word.is_some_and(|word| own_u32(word) >> (holder.0 % 32) & 1 == 1)
    }

    /// Sets or clears a holder's bit; false if there is no room for it. Only the writer calls it.
    pub(crate) fn set_bit(self, holder: HolderId, on: bool) -> bool {
        let Some(word) = self.bits().get(holder.index() / 32) else { return false };
        let mask = 1 << (holder.0 % 32);
        let old = own_u32(word);
        word.store(if on { old | mask } else { old & !mask }, Ordering::Release);
        true
    }
}

impl Draft {
    /// Sets a holder's cutoff in a run of `len` blocks.
    pub(crate) fn set(&mut self, holder: HolderId, cutoff: u32, len: u32) {
        self.partial.retain(|(other, _)| *other != holder);
        let index = holder.index() / 32;
        let mask = 1 << (holder.0 % 32);
        if cutoff >= len {
            if self.bits.len() <= index {
                self.bits.resize(index + 1, 0);
            }
            if let Some(word) = self.bits.get_mut(index) {
                *word |= mask;
            }
            return;
        }
        if let Some(word) = self.bits.get_mut(index) {
            *word &= !mask;
        }
        if cutoff > 0 {
            self.partial.push((holder, cutoff));
        }
    }

    /// Lists the holders with their cutoffs in a run of `len` blocks.
    pub(crate) fn iter(&self, len: u32) -> impl Iterator<Item = (HolderId, u32)> + '_ {
        let whole = ones(self.bits.iter().map(|word| u64::from(*word)), 32).map(move |holder| (holder, len));
        whole.chain(self.partial.iter().copied())
    }
}

/// Lists the holders in words.
pub(crate) fn members(words: &[AtomicU32]) -> impl Iterator<Item = (HolderId, u32)> + '_ {
    words.iter().map(own_u32).filter(|word| *word != NOBODY).map(unpack)
}

/// Finds the word of a holder, or of nobody.
pub(crate) fn word_of(words: &[AtomicU32], holder: Option<HolderId>) -> Option<&AtomicU32> {
    let wanted = holder.map_or(0, |holder| pack(holder, 0) >> CUTOFF_BITS);
    words.iter().find(|word| own_u32(word) >> CUTOFF_BITS == wanted)
}

/// Lists the holders whose bits are set in words that hold `width` bits each.
pub(crate) fn ones(words: impl Iterator<Item = u64>, width: usize) -> impl Iterator<Item = HolderId> {
    words.zip((0_u32..).step_by(width)).flat_map(|(word, base)| Ones { word, base })
}

/// The set bits of one word.
#[derive(Clone, Debug)]
pub(crate) struct Ones {
    pub(crate) word: u64,
    pub(crate) base: u32,
}

impl Iterator for Ones {
    type Item = HolderId;

    fn next(&mut self) -> Option<HolderId> {
        if self.word == 0 {
            return None;
        }
        let bit = self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(HolderId(self.base + bit))
    }
}
