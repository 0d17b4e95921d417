//! What the writer and the readers have in common.

use std::sync::OnceLock;

use identity::BlockKey;

use crate::epoch::Epochs;
use crate::head_table::HeadTable;
use crate::limbo::Limbo;
use crate::limits::Limits;
use crate::runs::{self, Directory, Header, RunId, Runs};
use crate::slots::{self, KeyDirectory, Slots};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// The shared part of an index.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) epochs: Epochs,
    pub(crate) directory: Directory,
    pub(crate) keys: KeyDirectory,
    pub(crate) heads: AtomicPtr<HeadTable>,
    /// A bit for each holder that is present.
    pub(crate) active: Box<[AtomicU64]>,
    /// How many words of `active` are in use.
    pub(crate) words: AtomicU64,
    /// How often a reader found a run reshaped under it.
    pub(crate) retries: AtomicU64,
    /// What the writer leaves when it goes before its readers.
    pub(crate) estate: OnceLock<Estate>,
}

/// The writer's memory that readers may point into.
#[derive(Debug)]
pub(crate) struct Estate {
    pub(crate) _slots: Slots,
    pub(crate) _runs: Runs,
    pub(crate) _limbo: Limbo,
}

impl Shared {
    pub(crate) fn new(limits: Limits, runs_max: u32) -> Self {
        let words = (limits.holders_max as usize).div_ceil(64);
        Self {
            epochs: Epochs::new(),
            directory: runs::directory(runs_max),
            keys: slots::directory(limits.blocks_max),
            heads: AtomicPtr::new(Box::into_raw(Box::new(HeadTable::for_runs(0)))),
            active: (0..words).map(|_| AtomicU64::new(0)).collect(),
            words: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            estate: OnceLock::new(),
        }
    }

    /// Returns the head table in use, good for as long as the caller is pinned or is the writer.
    #[expect(unsafe_code, reason = "published by pointer")]
    pub(crate) fn heads(&self) -> &HeadTable {
        // SAFETY: the pointer is never null and always from `Box::into_raw`; a replaced table is freed only after its
        // grace, and the last one in `drop`.
        unsafe { &*self.heads.load(Ordering::Acquire) }
    }

    /// Finds the run that begins with a key, under the same terms.
    pub(crate) fn find_head(&self, key: BlockKey) -> Option<(RunId, &Header)> {
        self.heads().find(key, |run| self.run_at(run, key).map(|header| (run, header)))
    }

    /// Returns a run's header if the run begins with a key.
    pub(crate) fn run_at(&self, run: RunId, key: BlockKey) -> Option<&Header> {
        runs::header(&self.directory, run).filter(|header| header.head.load(Ordering::Relaxed) == key.get())
    }
}

impl Drop for Shared {
    #[expect(unsafe_code, reason = "takes back what was published by pointer")]
    fn drop(&mut self) {
        // SAFETY: nobody else has the shared part any more, and the table in use was never retired.
        drop(unsafe { Box::from_raw(self.heads.load(Ordering::Relaxed)) });
    }
}
