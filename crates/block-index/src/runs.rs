//! The runs: a cache line each that readers see, and what only the writer knows about it.

use std::collections::VecDeque;

use crate::members::{FEW, Many, NOBODY};
use crate::slots::{NONE, Slot};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, own_u64};

/// Names a run; reused after its grace.
pub(crate) type RunId = u32;

/// Runs in a chunk.
const CHUNK: usize = if cfg!(loom) { 4 } else { 1_024 };
const WORDS: usize = CHUNK.div_ceil(64);

/// The shape of a run that is no longer in the tree.
pub(crate) const DEAD: u64 = u64::MAX;

/// What readers see of a run.
///
/// `shape` is a version and the length. It changes with every split, merge, growth and trim; a reader that finds it
/// unchanged after it took in the holders and looked for the next run has seen them all as they were at one time.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) head: AtomicU64,
    pub(crate) shape: AtomicU64,
    /// First slot.
    pub(crate) slot: AtomicU32,
    /// One more than the run that alone continues this one, 0 if there is none or several: a guess that spares readers
    /// the table.
    pub(crate) next: AtomicU32,
    pub(crate) many: AtomicPtr<AtomicU32>,
    pub(crate) few: [AtomicU32; FEW],
}

/// What only the writer knows of a run.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// First slot.
    pub(crate) start: Slot,
    /// Blocks; as published.
    pub(crate) len: u32,
    /// Blocks that some holder has; the rest waits to be trimmed or stored again.
    pub(crate) alive: u32,
    /// Slot of the block before the first, `NONE` at the root.
    pub(crate) parent: Slot,
    /// Blocks before the first, from the root.
    pub(crate) depth: u32,
    /// First of the runs that continue this one, at whatever block.
    pub(crate) child: RunId,
    /// Neighbours among the runs with the same parent run.
    pub(crate) next: RunId,
    pub(crate) prev: RunId,
    /// Holders.
    pub(crate) members: u32,
    /// Holders with a bit.
    pub(crate) whole: u32,
    /// Stamp of when the words in the header were last left for a `Many`.
    pub(crate) left_few: u64,
    /// Waits in the queue of runs to trim.
    pub(crate) queued: bool,
    /// The slots after the last block are not this run's to grow into.
    pub(crate) sealed: bool,
}

/// One block of runs.
#[derive(Debug)]
struct Chunk {
    headers: *mut Header,
    metas: Box<[Meta]>,
    used: [u64; WORDS],
    live: usize,
}

/// Where readers find the headers of each chunk.
pub(crate) type Directory = Box<[AtomicPtr<Header>]>;

/// All runs of an index. Only the writer has it.
#[derive(Debug)]
pub(crate) struct Runs {
    chunks: Vec<Option<Chunk>>,
    hint: usize,
    count: u32,
    /// Runs whose holders left blocks behind, oldest first.
    pub(crate) to_trim: VecDeque<RunId>,
}

// SAFETY: the raw pointers are owned allocations of atomics; nothing in them is tied to a thread.
#[expect(unsafe_code, reason = "owned allocations behind raw pointers")]
unsafe impl Send for Runs {}
// SAFETY: through `&Runs` only atomics and plain data are read that change through `&mut Runs`.
#[expect(unsafe_code, reason = "owned allocations behind raw pointers")]
unsafe impl Sync for Runs {}

impl Header {
    fn vacant() -> Self {
        Self {
            head: AtomicU64::new(0),
            shape: AtomicU64::new(DEAD),
            slot: AtomicU32::new(NONE),
            next: AtomicU32::new(0),
            many: AtomicPtr::new(std::ptr::null_mut()),
            few: std::array::from_fn(|_| AtomicU32::new(NOBODY)),
        }
    }

    /// Returns the holders beyond the few, if there are.
    ///
    /// The reference is good for as long as the caller is pinned, or is the writer and has not retired it.
    #[expect(unsafe_code, reason = "published by pointer")]
    pub(crate) fn many(&self) -> Option<Many<'_>> {
        let many = self.many.load(Ordering::Acquire);
        // SAFETY: the pointer is null or from `Many::allocate`, published after it was filled; it is freed only after
        // the grace of its retirement, which every caller is within.
        unsafe { Many::at(many) }
    }

    /// Publishes a new length under a new version. Only the writer calls it.
    pub(crate) fn reshape(&self, len: u32) {
        let version = (own_u64(&self.shape) >> 32) + 1;
        // Never the value of `DEAD`, whose lower half is no length.
        self.shape.store(version << 32 | u64::from(len), Ordering::Release);
    }
}

impl Meta {
    /// A run of `len` blocks without holders.
    pub(crate) const fn new(start: Slot, len: u32, parent: Slot, depth: u32) -> Self {
        Self {
            start,
            len,
            alive: 0,
            parent,
            depth,
            child: NONE,
            next: NONE,
            prev: NONE,
            members: 0,
            whole: 0,
            left_few: 0,
            queued: false,
            sealed: false,
        }
    }
}

/// Makes the directory for a bound on runs.
pub(crate) fn directory(runs_max: u32) -> Directory {
    let chunks = (runs_max as usize).div_ceil(CHUNK) + 1;
    (0..chunks).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
}

/// Returns a run's header.
///
/// The reference is good for as long as the caller is pinned (and the run was found in the head table), or is the writer.
#[expect(unsafe_code, reason = "published by pointer")]
pub(crate) fn header(directory: &Directory, run: RunId) -> Option<&Header> {
    let chunk = directory.get(run as usize / CHUNK)?.load(Ordering::Acquire);
    if chunk.is_null() {
        return None;
    }
    // SAFETY: a non-null entry is an allocation of `CHUNK` headers, all made before it was published; it is taken back
    // only when none of its runs was used and the grace of the last one had passed.
    Some(unsafe { &*chunk.add(run as usize % CHUNK) })
}

impl Runs {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), hint: 0, count: 0, to_trim: VecDeque::new() }
    }

    /// Counts the runs in use, those in limbo included.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> u64 {
        let each = CHUNK * (size_of::<Header>() + size_of::<Meta>()) + size_of::<Chunk>();
        (self.chunks.iter().flatten().count() * each + self.to_trim.capacity() * 4) as u64
    }

    /// Lists the runs in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RunId, &Meta)> {
        let chunks = self.chunks.iter().zip((0_u32..).step_by(CHUNK)).filter_map(|(chunk, base)| {
            let chunk = chunk.as_ref()?;
            Some((chunk, base))
        });
        chunks.flat_map(|(chunk, base)| {
            let used = crate::members::ones(chunk.used.iter().copied(), 64);
            used.filter_map(move |index| Some((base + index.0, chunk.metas.get(index.index())?)))
        })
    }

    pub(crate) fn get(&self, run: RunId) -> Option<&Meta> {
        let chunk = self.chunks.get(run as usize / CHUNK)?.as_ref()?;
        chunk.metas.get(run as usize % CHUNK)
    }

    pub(crate) fn get_mut(&mut self, run: RunId) -> Option<&mut Meta> {
        let chunk = self.chunks.get_mut(run as usize / CHUNK)?.as_mut()?;
        chunk.metas.get_mut(run as usize % CHUNK)
    }

    /// Takes a free run for `meta`; `None` when the directory is full.
    pub(crate) fn allocate(&mut self, directory: &Directory, meta: Meta) -> Option<RunId> {
        let room = |chunk: &Option<Chunk>| chunk.as_ref().is_none_or(|chunk| chunk.live < CHUNK);
        let from = self.hint.min(self.chunks.len());
        let index = self.chunks.iter().skip(from).position(room).map_or(self.chunks.len(), |at| from + at);
        if index == self.chunks.len() {
            directory.get(index)?;
            self.chunks.push(None);
        }
        self.hint = index;
        let place = self.chunks.get_mut(index)?;
        let chunk = place.get_or_insert_with(|| {
            let chunk = Chunk::new();
            if let Some(entry) = directory.get(index) {
                entry.store(chunk.headers, Ordering::Release);
            }
            chunk
        });
        let within = crate::bits::find_zeros(&chunk.used, 0, 1)?;
        crate::bits::set(&mut chunk.used, within, 1);
        chunk.live += 1;
        self.count += 1;
        *chunk.metas.get_mut(within as usize)? = meta;
        u32::try_from(index * CHUNK).ok().map(|base| base + within)
    }

    /// Gives a run and its `Many` back; no reader may reach them any more.
    #[expect(unsafe_code, reason = "takes back what was published by pointer")]
    pub(crate) fn free(&mut self, directory: &Directory, run: RunId) {
        let index = run as usize / CHUNK;
        let many =
            header(directory, run).map(|header| header.many.swap(std::ptr::null_mut(), Ordering::AcqRel));
        // SAFETY: from `Many::allocate`; swapped out of a header whose run is past its grace.
        unsafe { Many::free(many.unwrap_or(std::ptr::null_mut())) };
        let Some(place) = self.chunks.get_mut(index) else { return };
        let Some(chunk) = place else { return };
        crate::bits::clear(&mut chunk.used, run % u32::try_from(CHUNK).unwrap_or(1), 1);
        chunk.live -= 1;
        self.count -= 1;
        self.hint = self.hint.min(index);
        if chunk.live == 0
            && let Some(entry) = directory.get(index)
        {
            entry.store(std::ptr::null_mut(), Ordering::Release);
            *place = None;
        }
    }
}

impl Chunk {
    fn new() -> Self {
        let headers: Box<[Header]> = (0..CHUNK).map(|_| Header::vacant()).collect();
        let metas = vec![Meta::new(NONE, 0, NONE, 0); CHUNK].into_boxed_slice();
        Self { headers: Box::into_raw(headers).cast(), metas, used: [0; WORDS], live: 0 }
    }
}

impl Drop for Chunk {
    #[expect(unsafe_code, reason = "takes back what `new` turned into a raw pointer")]
    fn drop(&mut self) {
        // SAFETY: `headers` came from `Box::into_raw` of a slice of `CHUNK` headers and is freed once, here: either no
        // run in it was used and the grace of all had passed, or the last handle of the index is gone.
        let headers = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.headers, CHUNK)) };
        for header in &headers {
            // SAFETY: a `Many` still in its header was not retired, so this is its only owner.
            unsafe { Many::free(header.many.load(Ordering::Relaxed)) };
        }
    }
}
