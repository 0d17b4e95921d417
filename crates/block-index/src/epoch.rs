//! Tells the writer when memory that it unlinked can no longer be read.
//!
//! ```text
//! reader   pin: pins[i] = now ──────── reads ──────── unpin: pins[i] = 0
//! writer          unlink x, stamp x with now ── now += 1 ── scan pins: all above the stamp? free x
//! ```
//!
//! A reader that announced an epoch above a stamp saw the epoch after the unlinking, so it cannot reach what was
//! unlinked. A reader never waits: without a free pin it joins the crowd, and nothing is freed while there is one. The
//! writer never waits either: what it cannot free yet stays in limbo.

use crate::sync::{AtomicU64, Ordering, announced, fence};

/// How many readers can be inside at once before the rest join the crowd.
const PINS: usize = if cfg!(loom) { 2 } else { 64 };

/// A pin nobody uses.
const FREE: u64 = 0;

/// A word alone on its cache line, so that readers do not slow each other.
#[repr(align(64))]
#[derive(Debug)]
struct Pin(AtomicU64);

/// The epochs of one index.
#[derive(Debug)]
pub(crate) struct Epochs {
    now: AtomicU64,
    crowd: AtomicU64,
    pins: Box<[Pin]>,
}

/// Keeps everything reachable now from being freed.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    epochs: &'a Epochs,
    pin: Option<&'a Pin>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        let pins = (0..PINS).map(|_| Pin(AtomicU64::new(FREE))).collect();
        Self { now: AtomicU64::new(FREE + 1), crowd: AtomicU64::new(0), pins }
    }

    /// Enters; wait-free.
    pub(crate) fn pin(&self) -> Pinned<'_> {
        let now = self.now.load(Ordering::Acquire);
        let first = near();
        for pin in (first..first + PINS).filter_map(|at| self.pins.get(at % PINS)) {
            let free = pin.0.load(Ordering::Relaxed) == FREE;
            if free && pin.0.compare_exchange(FREE, now, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                announced();
                return Pinned { epochs: self, pin: Some(pin) };
            }
        }
        self.crowd.fetch_add(1, Ordering::SeqCst);
        announced();
        Pinned { epochs: self, pin: None }
    }

    /// Returns the stamp for something that was just unlinked. Only the writer calls it.
    pub(crate) fn stamp(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Starts a new epoch and returns the bound below which stamps are safe to free. Only the writer calls it.
    pub(crate) fn advance(&self) -> u64 {
        let now = self.now.load(Ordering::Relaxed) + 1;
        self.now.store(now, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.crowd.load(Ordering::Acquire) > 0 {
            return 0;
        }
        let pinned = self.pins.iter().map(|pin| pin.0.load(Ordering::Acquire)).filter(|epoch| *epoch != FREE);
        pinned.min().unwrap_or(now)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        match self.pin {
            Some(pin) => pin.0.store(FREE, Ordering::Release),
            None => {
                self.epochs.crowd.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Picks where to look for a pin first: threads differ by where their stacks are.
fn near() -> usize {
    if cfg!(loom) {
        return 0; // The checker repeats schedules, so nothing may depend on addresses.
    }
    let here = 0_u8;
    let place = std::ptr::from_ref(&here).addr();
    (place >> 16).wrapping_mul(0x9e37_79b9) / 64 % PINS
}
