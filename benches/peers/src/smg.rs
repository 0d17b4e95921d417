//! `ChainIndex` of kv-index.

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use crate::index::Index;
use crate::meter::cpu_ns;
use crate::workload::{Event, Kind, Workload};

pub struct Chain {
    index: ChainIndex,
    maps: Vec<ChainBlockMap>,
    blocks: Vec<StoredBlock>,
    sequences: Vec<SequenceHash>,
    queries: Vec<ContentHash>,
}

impl Chain {
    pub fn new(workload: &Workload) -> Self {
        let index = ChainIndex::with_max_workers(workload.holders as usize);
        for worker in 0..workload.holders {
            assert_eq!(index.intern_worker(&format!("w{worker:05}")).ok(), Some(worker), "workers are numbered in order");
        }
        let pairs = workload.keys.iter().zip(&workload.locals);
        Self {
            index,
            maps: (0..workload.holders).map(|_| ChainBlockMap::new()).collect(),
            blocks: pairs
                .map(|(key, local)| StoredBlock { seq_hash: SequenceHash(*key), content_hash: ContentHash(*local) })
                .collect(),
            sequences: workload.keys.iter().copied().map(SequenceHash).collect(),
            queries: workload.query_locals.iter().copied().map(ContentHash).collect(),
        }
    }

    fn query(&self, (from, len): (usize, usize)) -> &[ContentHash] {
        &self.queries[from..from + len]
    }
}

impl Index for Chain {
    fn apply(&mut self, _: &Workload, events: &[Event]) -> u64 {
        let begin = cpu_ns();
        for event in events {
            let (range, map) = (event.from..event.from + event.len, &mut self.maps[event.holder as usize]);
            match event.kind {
                Kind::Stored { parent } => {
                    let parent = parent.map(SequenceHash);
                    self.index.apply_stored(event.holder, &self.blocks[range], parent, map).ok();
                }
                Kind::Removed => self.index.apply_removed(event.holder, &self.sequences[range], map),
            }
        }
        cpu_ns() - begin
    }

    fn each(&mut self, query: (usize, usize)) -> usize {
        let mut count = 0;
        self.index.score_into(
            self.query(query),
            |hash| hash.0,
            false,
            |worker, depth| {
                std::hint::black_box((worker, depth));
                count += 1;
            },
        );
        count
    }

    fn other(&mut self, query: (usize, usize)) -> Option<usize> {
        Some(self.index.find_matches(self.query(query), false).scores.len())
    }

    fn answer(&mut self, query: (usize, usize)) -> Vec<(u32, u32)> {
        self.index.find_matches(self.query(query), false).scores.iter().map(|(worker, depth)| (*worker, *depth)).collect()
    }

    fn touch(&self, query: (usize, usize)) -> u64 {
        self.query(query).iter().fold(0, |acc, hash| acc ^ hash.0)
    }

    fn remove(&mut self, worker: u32) -> u64 {
        let map = std::mem::take(&mut self.maps[worker as usize]);
        let begin = cpu_ns();
        self.index.remove_worker(worker, map);
        cpu_ns() - begin
    }
}
