//! What was unlinked and waits until no reader can reach it.

use std::collections::VecDeque;

use crate::head_table::HeadTable;
use crate::limits::HolderId;
use crate::members::Many;
use crate::runs::RunId;
use crate::slots::Slot;
use crate::sync::AtomicU32;

/// Something unlinked.
#[derive(Debug)]
pub(crate) enum Garbage {
    Slots { start: Slot, len: u32 },
    Run(RunId),
    Holder(HolderId),
    Many { _memory: ManyMemory },
    Heads { _memory: Memory<HeadTable> },
}

/// An owned allocation that readers may still point to, freed when dropped.
#[derive(Debug)]
pub(crate) struct Memory<T>(*mut T);

// SAFETY: it owns its target like a box; the targets are made of atomics.
#[expect(unsafe_code, reason = "an owned allocation behind a raw pointer")]
unsafe impl<T: Send + Sync> Send for Memory<T> {}
// SAFETY: as above; a shared reference gives no access to the target.
#[expect(unsafe_code, reason = "an owned allocation behind a raw pointer")]
unsafe impl<T: Send + Sync> Sync for Memory<T> {}

impl<T> Memory<T> {
    /// Takes over an allocation.
    ///
    /// # Safety
    /// The pointer is from `Box::into_raw`, was unlinked, and is taken over once. The result is dropped only when no
    /// reader can reach it.
    #[expect(unsafe_code, reason = "ownership of a raw pointer cannot be checked")]
    pub(crate) const unsafe fn retired(pointer: *mut T) -> Self {
        Self(pointer)
    }
}

impl<T> Drop for Memory<T> {
    #[expect(unsafe_code, reason = "takes back what was published by pointer")]
    fn drop(&mut self) {
        // SAFETY: promised by the caller of `retired`.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// An owned `Many` that readers may still point to, freed when dropped.
#[derive(Debug)]
pub(crate) struct ManyMemory(*mut AtomicU32);

// SAFETY: it owns its target like a box; the target is made of atomics.
#[expect(unsafe_code, reason = "an owned allocation behind a raw pointer")]
unsafe impl Send for ManyMemory {}
// SAFETY: as above; a shared reference gives no access to the target.
#[expect(unsafe_code, reason = "an owned allocation behind a raw pointer")]
unsafe impl Sync for ManyMemory {}

impl ManyMemory {
    /// Takes over an allocation.
    ///
    /// # Safety
    /// As for [`Memory::retired`], with a pointer from `Many::allocate`.
    #[expect(unsafe_code, reason = "ownership of a raw pointer cannot be checked")]
    pub(crate) const unsafe fn retired(pointer: *mut AtomicU32) -> Self {
        Self(pointer)
    }
}

impl Drop for ManyMemory {
    #[expect(unsafe_code, reason = "takes back what was published by pointer")]
    fn drop(&mut self) {
        // SAFETY: promised by the caller of `retired`.
        unsafe { Many::free(self.0) };
    }
}

/// Garbage with the epoch in which it was unlinked, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Limbo(VecDeque<(u64, Garbage)>);

impl Limbo {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn push(&mut self, stamp: u64, garbage: Garbage) {
        self.0.push_back((stamp, garbage));
    }

    /// Takes the oldest piece if its stamp is below the bound.
    pub(crate) fn pop_below(&mut self, bound: u64) -> Option<Garbage> {
        if self.0.front().is_some_and(|(stamp, _)| *stamp < bound) {
            return self.0.pop_front().map(|(_, garbage)| garbage);
        }
        if self.0.is_empty() && self.0.capacity() > 1_024 {
            self.0.shrink_to_fit();
        }
        None
    }
}
