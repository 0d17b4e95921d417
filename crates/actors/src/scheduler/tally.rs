//! What a scheduler counts.

/// What a scheduler counts, over all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests placed.
    pub placed: u64,
    /// Requests that had to wait.
    pub waited: u64,
    /// Requests refused because every holder was busy.
    pub overloaded: u64,
    /// Requests that wait now.
    pub waiting: usize,
    /// Blocks that dispatches are to bring.
    pub pending_blocks: usize,
    /// Dispatches whose blocks the index has not shown yet.
    pub settling: usize,
}
