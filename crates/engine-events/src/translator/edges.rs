//! Media items whose placeholders reach the end of an event: only the next block tells whether they end there.

use std::collections::{HashMap, VecDeque};

use membership::MediaRun;

use crate::batch::EngineHash;

/// Items remembered; prompts that end within an image are few.
const EDGES_MAX: usize = 1024;

/// The items by the last block that was stored of them, the oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct Edges {
    runs: HashMap<EngineHash, MediaRun>,
    order: VecDeque<EngineHash>,
}

impl Edges {
    /// Remembers the item that reaches the end of a block.
    pub(super) fn put(&mut self, last: EngineHash, run: MediaRun) {
        if self.runs.insert(last.clone(), run).is_none() {
            self.order.push_back(last);
        }
        if self.order.len() > EDGES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }

    /// Takes the item that reached the end of a block, once.
    pub(super) fn take(&mut self, last: &EngineHash) -> Option<MediaRun> {
        if self.runs.is_empty() {
            return None;
        }
        let run = self.runs.remove(last)?;
        self.order.retain(|known| known != last);
        Some(run)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use identity::{BlockKey, MediaId};

    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut edges = Edges::default();
        let run = || MediaRun { id: MediaId::new("a"), first_key: BlockKey::new(1), tokens: 3 };
        for hash in 0..=EDGES_MAX as u64 {
            edges.put(EngineHash::Int(hash), run());
        }
        assert_eq!((edges.runs.len(), edges.order.len()), (EDGES_MAX, EDGES_MAX));
        assert_eq!(edges.take(&EngineHash::Int(0)), None);
        assert_eq!(edges.take(&EngineHash::Int(1)), Some(run()));
        assert_eq!(edges.take(&EngineHash::Int(1)), None);
        assert_eq!((edges.runs.len(), edges.order.len()), (EDGES_MAX - 1, EDGES_MAX - 1));
    }
}
