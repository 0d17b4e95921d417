//! Ours.

use block_index::Matches;

use crate::index::Index;
use crate::ours::Ours;
use crate::workload::{Event, Workload};

impl Index for Ours {
    fn apply(&mut self, _: &Workload, events: &[Event]) -> u64 {
        Self::apply(self, events)
    }

    fn each(&mut self, query: (usize, usize)) -> usize {
        let mut found = std::mem::take(&mut self.found);
        let count = Self::each(self, query, &mut found);
        self.found = found;
        count
    }

    fn other(&mut self, query: (usize, usize)) -> Option<usize> {
        let mut found = std::mem::take(&mut self.found);
        let count = self.grouped(query, &mut found);
        self.found = found;
        Some(count)
    }

    fn answer(&mut self, query: (usize, usize)) -> Vec<(u32, u32)> {
        let mut found = Matches::new();
        self.reader.matches(self.query(query), &mut found);
        found.iter().map(|(holder, depth)| (holder.get(), depth)).collect()
    }

    fn touch(&self, query: (usize, usize)) -> u64 {
        self.query(query).iter().fold(0, |acc, key| acc ^ key.get())
    }

    fn remove(&mut self, worker: u32) -> u64 {
        self.remove_holder(worker as usize)
    }
}
