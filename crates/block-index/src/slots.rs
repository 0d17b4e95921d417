//! Where block keys live: slots that never move, handed out in contiguous ranges.
//!
//! A chunk is 65,536 slots in pages of eight (one cache line of keys). A range begins on a page of its own and may grow
//! in place while the pages after it are free; ranges are laid out with gaps for that. A chunk without ranges is given
//! back.

use std::sync::Arc;

use identity::BlockKey;

use crate::bits;
use crate::sync::{AtomicPtr, Ordering};

/// Names a place for one key: chunk in the upper, offset in the lower 16 bits.
pub(crate) type Slot = u32;

/// No slot, no run.
pub(crate) const NONE: u32 = u32::MAX;

/// The owner of slots that are being filled.
pub(crate) const LAID: u32 = u32::MAX - 1;

/// Slots in a page.
pub(crate) const PAGE: u32 = 8;

/// Longest range: a cutoff in it takes 13 bits.
pub(crate) const RANGE_MAX: u32 = if cfg!(loom) { 64 } else { 8_192 - PAGE };

/// Pages left free after a range for it to grow into, per page it has: a prompt's later turns then mostly find room, and
/// lookups few runs. What stays free is handed out once the chunk's time has come.
const GAP: u32 = 3;
const GAP_MAX: u32 = 256;

const CHUNK: u32 = if cfg!(loom) { 1 << 9 } else { 1 << 16 };
const PAGES: u32 = CHUNK / PAGE;
const WORDS: usize = (PAGES / 64) as usize;

/// One block of slots. Readers hold pointers into `keys`, hence the raw pointer: no reference to the whole is made.
#[derive(Debug)]
struct Chunk {
    keys: *mut BlockKey,
    owner: Box<[u32]>,
    used: [u64; WORDS],
    free: u32,
    /// Free pages when a search last failed here.
    tired_at: u32,
    /// How many chunks had been opened before.
    opened: u64,
}

/// Where readers find the keys of each chunk.
pub(crate) type KeyDirectory = Arc<[AtomicPtr<BlockKey>]>;

/// All slots of an index. Only the writer has it.
#[derive(Debug)]
pub(crate) struct Slots {
    directory: KeyDirectory,
    chunks: Vec<Option<Chunk>>,
    open: u32,
    cursor: u32,
    gaps: bool,
    opened: u64,
}

// SAFETY: the raw pointers are owned allocations of plain integers; nothing in them is tied to a thread.
#[expect(unsafe_code, reason = "owned allocations behind raw pointers")]
unsafe impl Send for Slots {}
// SAFETY: `&Slots` only reads keys that are written through `&mut Slots`.
#[expect(unsafe_code, reason = "owned allocations behind raw pointers")]
unsafe impl Sync for Slots {}

impl Slots {
    pub(crate) const fn new(directory: KeyDirectory) -> Self {
        Self { directory, chunks: Vec::new(), open: 0, cursor: 0, gaps: true, opened: 0 }
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().flatten().count() as u64;
        chunks * (u64::from(CHUNK) * 12 + size_of::<Chunk>() as u64)
            + (self.chunks.capacity() * size_of::<Option<Chunk>>()) as u64
    }

    /// Returns the address of a slot's key; it stays where it is until its range was freed.
    fn address(&self, slot: Slot) -> *mut BlockKey {
        match self.chunks.get(chunk_of(slot)) {
            Some(Some(chunk)) => chunk.keys.wrapping_add(offset_in(slot)),
            _ => std::ptr::null_mut(),
        }
    }

    /// Returns the keys of `len` allocated slots from `start`.
    #[expect(unsafe_code, reason = "keys are shared with readers, so they are reached by pointer")]
    pub(crate) fn keys(&self, start: Slot, len: u32) -> &[BlockKey] {
        debug_assert!(len == 0 || offset_in(start) + len as usize <= CHUNK as usize);
        if len == 0 {
            return &[];
        }
        let address = self.address(start);
        debug_assert!(!address.is_null());
        // SAFETY: the range lies in one allocated chunk (ranges never cross chunks, and the caller's ranges are
        // allocated), all of which is initialised; keys change only through `&mut self`.
        unsafe { std::slice::from_raw_parts(address, len as usize) }
    }

    /// Returns the key in an allocated slot.
    pub(crate) fn key(&self, slot: Slot) -> Option<BlockKey> {
        self.keys(slot, 1).first().copied()
    }

    /// Returns the key in a slot, if the slot belongs to somebody.
    pub(crate) fn live_key(&self, slot: Slot) -> Option<BlockKey> {
        if self.owner(slot) == NONE { None } else { self.key(slot) }
    }

    /// Tells whether a slot belongs to somebody and has this key.
    pub(crate) fn holds(&self, slot: Slot, key: BlockKey) -> bool {
        self.owner(slot) != NONE && self.key(slot) == Some(key)
    }

    /// Writes keys into slots that no reader can reach yet, and names their owner.
    #[expect(unsafe_code, reason = "keys are shared with readers, so they are reached by pointer")]
    pub(crate) fn write(&mut self, start: Slot, keys: &[BlockKey], owner: u32) {
        let Some(Some(chunk)) = self.chunks.get_mut(chunk_of(start)) else { return };
        let first = offset_in(start);
        let Some(owners) = chunk.owner.get_mut(first..first + keys.len()) else { return };
        owners.fill(owner);
        // SAFETY: `owners` proved that the range lies within the chunk; the source is another allocation; readers only
        // read slots below a published length, and those are never handed out before their grace has passed.
        unsafe { std::ptr::copy_nonoverlapping(keys.as_ptr(), chunk.keys.add(first), keys.len()) }
    }

    /// Returns which run a slot belongs to, or `NONE`.
    pub(crate) fn owner(&self, slot: Slot) -> u32 {
        match self.chunks.get(chunk_of(slot)) {
            Some(Some(chunk)) => chunk.owner.get(offset_in(slot)).copied().unwrap_or(NONE),
            _ => NONE,
        }
    }

    /// Names the owner of `len` slots.
    pub(crate) fn set_owner(&mut self, start: Slot, len: u32, owner: u32) {
        let first = offset_in(start);
        if let Some(Some(chunk)) = self.chunks.get_mut(chunk_of(start))
            && let Some(owners) = chunk.owner.get_mut(first..first + len as usize)
        {
            owners.fill(owner);
        }
    }

    /// Allocates a range of `len` slots (at most `RANGE_MAX`), which begins on a page of its own.
    ///
    /// `None` when all chunks that can be numbered are full.
    pub(crate) fn allocate(&mut self, len: u32) -> Option<Slot> {
        let pages = len.div_ceil(PAGE).clamp(1, RANGE_MAX / PAGE);
        loop {
            if let Some(Some(chunk)) = self.chunks.get_mut(self.open as usize) {
                if let Some(page) = bits::find_zeros(&chunk.used, self.cursor, pages) {
                    bits::set(&mut chunk.used, page, pages);
                    chunk.free -= pages;
                    let gap = if self.gaps { (pages * GAP).min(GAP_MAX) } else { 0 };
                    self.cursor = page + pages + gap;
                    return Some(self.open * CHUNK + page * PAGE);
                }
                chunk.tired_at = chunk.free;
            }
            self.open_chunk(pages)?;
        }
    }

    /// Grows the range that ends before `end` by up to `want` slots in place, and returns by how many.
    ///
    /// The rest of the last page belongs to the range already.
    pub(crate) fn extend(&mut self, end: Slot, want: u32) -> u32 {
        let offset = end % CHUNK;
        let rest = offset.next_multiple_of(PAGE) - offset;
        if offset == 0 {
            return 0;
        }
        if rest >= want {
            return want;
        }
        let Some(Some(chunk)) = self.chunks.get_mut(chunk_of(end)) else { return 0 };
        let first = (offset + rest) / PAGE;
        let wanted = (want - rest).div_ceil(PAGE).min(PAGES - first);
        let pages = bits::count_zeros(&chunk.used, first, wanted);
        bits::set(&mut chunk.used, first, pages);
        chunk.free -= pages;
        if self.open as usize == chunk_of(end) && (first..=first + pages).contains(&self.cursor) {
            self.cursor = first + pages + u32::from(self.gaps);
        }
        want.min(rest + pages * PAGE)
    }

    /// Frees the pages that begin within `len` slots from `start`. No reader may reach them any more.
    pub(crate) fn free(&mut self, start: Slot, len: u32) {
        let first = (start % CHUNK).div_ceil(PAGE);
        let last = (start % CHUNK + len).div_ceil(PAGE);
        let index = chunk_of(start);
        let Some(place) = self.chunks.get_mut(index) else { return };
        let Some(chunk) = place else { return };
        bits::clear(&mut chunk.used, first, last.saturating_sub(first));
        chunk.free += last.saturating_sub(first);
        if chunk.free == PAGES && self.open as usize != index {
            self.drop_chunk(index);
        }
    }

    fn drop_chunk(&mut self, index: usize) {
        if let (Some(entry), Some(place)) = (self.directory.get(index), self.chunks.get_mut(index)) {
            entry.store(std::ptr::null_mut(), Ordering::Release);
            *place = None;
        }
        while let Some(None) = self.chunks.last() {
            self.chunks.pop();
        }
    }

    /// Gives back the memory of chunks without ranges, the open one included.
    pub(crate) fn shrink(&mut self) {
        for index in (0..self.chunks.len()).rev() {
            if let Some(Some(chunk)) = self.chunks.get(index)
                && chunk.free == PAGES
            {
                self.drop_chunk(index);
            }
        }
        self.chunks.shrink_to_fit();
    }

    /// Picks another chunk to allocate from, else a new one: half free, or a quarter free and of the older half, whose
    /// ranges have had their time to grow.
    fn open_chunk(&mut self, pages: u32) -> Option<()> {
        self.cursor = 0;
        let opened = self.opened;
        let roomy = |chunk: &Chunk| {
            let enough = if chunk.opened < opened / 2 { PAGES / 4 } else { PAGES / 2 };
            chunk.free >= enough.max(pages) && chunk.free >= chunk.tired_at.saturating_add(PAGES / 8)
        };
        let again = self.chunks.iter().position(|place| place.as_ref().is_some_and(roomy));
        self.gaps = again.is_none();
        let index = match again {
            Some(index) => index,
            None => self.new_chunk()?,
        };
        self.open = u32::try_from(index).unwrap_or(NONE);
        Some(())
    }

    fn new_chunk(&mut self) -> Option<usize> {
        let index = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        let entry = self.directory.get(index)?;
        if index == self.chunks.len() {
            self.chunks.push(None);
        }
        let chunk = Chunk::new(self.opened);
        self.opened += 1;
        entry.store(chunk.keys, Ordering::Release);
        *self.chunks.get_mut(index)? = Some(chunk);
        Some(index)
    }
}

/// Makes the directory for a bound on blocks: room for each in a page of its own, and a gap after it.
pub(crate) fn directory(blocks_max: u32) -> KeyDirectory {
    let chunks = u64::from(blocks_max) * 2 * u64::from(PAGE) / u64::from(CHUNK) + 64;
    // The last chunk would have the numbers `NONE` and `LAID`.
    let chunks = chunks.min(u64::from(u32::MAX / CHUNK));
    (0..chunks).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
}

/// Returns the address of a slot's key; null if its chunk is gone.
pub(crate) fn address(directory: &KeyDirectory, slot: Slot) -> *const BlockKey {
    directory.get(chunk_of(slot)).map_or(std::ptr::null(), |chunk| {
        let keys = chunk.load(Ordering::Acquire).cast_const();
        if keys.is_null() { keys } else { keys.wrapping_add(offset_in(slot)) }
    })
}

impl Chunk {
    fn new(opened: u64) -> Self {
        let keys = vec![BlockKey::new(0); CHUNK as usize].into_boxed_slice();
        Self {
            keys: Box::into_raw(keys).cast(),
            owner: vec![NONE; CHUNK as usize].into_boxed_slice(),
            used: [0; WORDS],
            free: PAGES,
            tired_at: 0,
            opened,
        }
    }
}

impl Drop for Chunk {
    #[expect(unsafe_code, reason = "takes back what `new` turned into a raw pointer")]
    fn drop(&mut self) {
        // SAFETY: `keys` came from `Box::into_raw` of a slice of `CHUNK` keys and is freed once, here; the owner of the
        // chunk has waited for the grace of every range in it.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.keys, CHUNK as usize)) });
    }
}

/// Tells whether two slots lie in one chunk, so that neighbours by number are neighbours in memory.
pub(crate) const fn same_chunk(left: Slot, right: Slot) -> bool {
    left / CHUNK == right / CHUNK
}

const fn chunk_of(slot: Slot) -> usize {
    (slot / CHUNK) as usize
}

const fn offset_in(slot: Slot) -> usize {
    (slot % CHUNK) as usize
}
