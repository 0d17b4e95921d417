//! Ours.

use block_index::Matches;

use crate::index::Index;
use crate::ours::Ours;
use crate::workload::{Event, Workload};

/// The index and a reused answer.
pub struct Beside {
    ours: Ours,
    found: Matches,
}

impl Beside {
    pub fn new(workload: &Workload) -> Self {
        Self { ours: Ours::new(workload), found: Matches::new() }
    }
}

impl Index for Beside {
    fn apply(&mut self, _: &Workload, events: &[Event]) -> u64 {
        self.ours.apply(events)
    }

    fn each(&mut self, query: (usize, usize)) -> usize {
        self.ours.each(query, &mut self.found)
    }

    fn other(&mut self, query: (usize, usize)) -> Option<usize> {
        Some(self.ours.grouped(query, &mut self.found))
    }

    fn answer(&mut self, query: (usize, usize)) -> Vec<(u32, u32)> {
        let mut found = Matches::new();
        self.ours.reader.matches(self.ours.query(query), &mut found);
        found.iter().map(|(holder, depth)| (holder.get(), depth)).collect()
    }

    fn touch(&self, query: (usize, usize)) -> u64 {
        self.ours.query(query).iter().fold(0, |acc, key| acc ^ key.get())
    }

    fn remove(&mut self, worker: u32) -> u64 {
        self.ours.remove_holder(worker as usize)
    }
}
