//! The atomics in use: the standard ones, or those of the model checker under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Loads a word that only the caller, the writer, stores.
///
/// The checker explores orders around the last access to a word alone, so a plain load before a store would hide the
/// readers' loads from it; there it is an exchange.
pub(crate) fn own_u64(word: &AtomicU64) -> u64 {
    if cfg!(loom) { word.fetch_or(0, Ordering::AcqRel) } else { word.load(Ordering::Relaxed) }
}

/// Loads a word that only the caller, the writer, stores; see [`own_u64`].
pub(crate) fn own_u32(word: &AtomicU32) -> u32 {
    if cfg!(loom) { word.fetch_or(0, Ordering::AcqRel) } else { word.load(Ordering::Relaxed) }
}

/// Orders a reader's announcement before everything it reads after it.
///
/// On x86-64 the locked exchange that precedes it is already a full barrier, and a second one would cost as much as a
/// short lookup.
pub(crate) fn announced() {
    if cfg!(all(target_arch = "x86_64", not(loom))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// Asks the processor to bring a cache line near; a hint without other effect.
#[expect(unsafe_code, reason = "the intrinsic takes a raw pointer")]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching has no architectural effect, whatever the address; SSE is part of the x86-64 baseline.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
