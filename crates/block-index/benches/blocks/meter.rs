//! Clocks and memory, as both bench programs read them.

/// CPU time of the calling thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Reads a clock, in nanoseconds.
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Bytes that the allocator has given out.
pub fn heap() -> u64 {
    // SAFETY: no preconditions.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// The value below which a share of the sorted values lies.
pub fn quantile(values: &mut [u32], share: f64) -> u32 {
    values.sort_unstable();
    values.get(((values.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or(0)
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
