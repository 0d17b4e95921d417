//! Bytes that requests hold together, within a bound. Nobody waits for room: what does not fit is refused.
//!
//! ```text
//! ByteBudget   what all may hold
//! └─ Tab       what one request holds of it
//!    └─ Share  a part of that, given back when it is dropped
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ports::media_source::{NoRoom, Room};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all requests may hold together; cheap to clone.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    limit: &'static str,
    bytes_max: u64,
    kib_max: usize,
    /// One permit for each KiB.
    free: Arc<Semaphore>,
}

/// What one request holds of a budget; clones are of the same request.
#[derive(Clone, Debug)]
pub struct Tab {
    budget: ByteBudget,
    held_kib: Arc<AtomicUsize>,
}

/// A part of what a request holds, given back when it is dropped; rounded up to KiB.
#[derive(Debug)]
pub struct Share {
    tab: Tab,
    bytes: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    /// Makes a budget of so many bytes, named by the setting that says so; rounded down to KiB.
    #[must_use]
    pub fn new(limit: &'static str, bytes_max: u64) -> Self {
        let kib_max = usize::try_from(bytes_max >> 10).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { limit, bytes_max, kib_max, free: Arc::new(Semaphore::new(kib_max)) }
    }

    /// Begins to count for another request.
    #[must_use]
    pub fn tab(&self) -> Tab {
        Tab { budget: self.clone(), held_kib: Arc::default() }
    }
}

impl Tab {
    /// Begins another part of what the request holds, empty.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { tab: self.clone(), bytes: 0, permit: None }
    }

    fn take(&self, kib: usize) -> Result<OwnedSemaphorePermit, NoRoom> {
        let taken = u32::try_from(kib).ok();
        let taken = taken.and_then(|kib| Arc::clone(&self.budget.free).try_acquire_many_owned(kib).ok());
        let Some(permit) = taken else {
            let alone = self.held_kib.load(Ordering::Relaxed).saturating_add(kib);
            let ByteBudget { limit, bytes_max, kib_max, .. } = self.budget;
            return Err(if alone > kib_max {
                NoRoom::TooMuch { limit, bytes_max }
            } else {
                NoRoom::Exhausted
            });
        };
        self.held_kib.fetch_add(kib, Ordering::Relaxed);
        Ok(permit)
    }
}

impl Share {
    fn kib(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

impl Room for Share {
    fn grow(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let bytes = self.bytes.saturating_add(bytes);
        let kib = usize::try_from(bytes.div_ceil(1024)).unwrap_or(usize::MAX);
        let more = kib.saturating_sub(self.kib());
        if more > 0 {
            let more = self.tab.take(more)?;
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                None => self.permit = Some(more),
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.tab.held_kib.fetch_sub(self.kib(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_fits_is_told_from_what_does_not_fit_now() {
        let budget = ByteBudget::new("limit", 10 << 10);
        let (one, other) = (budget.tab(), budget.tab());
        let mut held = one.share();
        // Parts of a KiB are counted once.
        (0..6).for_each(|_| held.grow(1000).unwrap());
        let mut asked = other.share();
        assert_eq!(asked.grow(6 << 10), Err(NoRoom::Exhausted));
        let too_much = Err(NoRoom::TooMuch { limit: "limit", bytes_max: 10 << 10 });
        assert_eq!(asked.grow(11 << 10), too_much);
        assert_eq!(one.share().grow(5 << 10), too_much);
        assert_eq!(one.share().grow(u64::MAX), too_much);
        drop(held);
        assert_eq!(asked.grow(10 << 10), Ok(()));
        drop(asked);
        assert_eq!(one.share().grow(10 << 10), Ok(()));
    }
}
