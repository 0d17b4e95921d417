//! This crate's index under a workload.

use block_index::{HolderId, Index, Limits, Matches, Reader};
use identity::BlockKey;

use crate::meter::cpu_ns;
use crate::workload::{Event, Kind, Workload};

pub struct Ours {
    pub index: Index,
    pub reader: Reader,
    pub ids: Vec<HolderId>,
    pub keys: Vec<BlockKey>,
    pub query_keys: Vec<BlockKey>,
    pub refused: u64,
}

impl Ours {
    pub fn new(workload: &Workload) -> Self {
        let limits = Limits { holders_max: workload.holders, blocks_max: 16 << 20 };
        let (mut index, reader) = block_index::new(limits);
        let ids = (0..workload.holders).filter_map(|_| index.add_holder().ok()).collect();
        let wrap = |keys: &[u64]| keys.iter().map(|key| BlockKey::new(*key)).collect();
        let (keys, query_keys) = (wrap(&workload.keys), wrap(&workload.query_keys));
        Self { index, reader, ids, keys, query_keys, refused: 0 }
    }

    /// Applies events and answers the CPU time it took, in nanoseconds.
    pub fn apply(&mut self, events: &[Event]) -> u64 {
        let begin = cpu_ns();
        for event in events {
            let keys = &self.keys[event.from..event.from + event.len];
            let holder = self.ids[event.holder as usize];
            match event.kind {
                Kind::Stored { parent } => {
                    let stored = self.index.store(holder, parent.map(BlockKey::new), keys);
                    self.refused += u64::from(stored.is_err());
                }
                Kind::Removed => {
                    self.index.remove(holder, keys);
                }
            }
        }
        cpu_ns() - begin
    }

    pub fn query(&self, (from, len): (usize, usize)) -> &[BlockKey] {
        &self.query_keys[from..from + len]
    }

    /// Looks up and passes every (holder, depth) on.
    pub fn each(&self, query: (usize, usize), found: &mut Matches) -> usize {
        self.reader.matches(self.query(query), found);
        let mut count = 0;
        found.for_each(|holder, depth| {
            std::hint::black_box((holder.get(), depth));
            count += 1;
        });
        count
    }

    /// Looks up and passes every group on.
    pub fn grouped(&self, query: (usize, usize), found: &mut Matches) -> usize {
        self.reader.matches(self.query(query), found);
        found.groups().map(|group| std::hint::black_box(group).depth as usize).sum()
    }

    /// Removes a holder and sweeps to the end; answers CPU nanoseconds.
    pub fn remove_holder(&mut self, holder: usize) -> u64 {
        let begin = cpu_ns();
        self.index.remove_holder(self.ids[holder]);
        while self.index.sweep(1 << 20) {}
        cpu_ns() - begin
    }
}
