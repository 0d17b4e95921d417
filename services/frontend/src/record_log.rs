//! The last requests, and the last that were predicted wrongly.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::record::Record;

/// Remembers a bounded number of requests by name.
#[derive(Debug)]
pub(crate) struct RecordLog(Mutex<Rings>);

#[derive(Debug)]
struct Rings {
    recent: Ring,
    mismatches: Ring,
}

#[derive(Debug)]
struct Ring {
    by_id: HashMap<String, Arc<Record>>,
    order: VecDeque<String>,
    kept: usize,
}

impl RecordLog {
    /// Remembers `kept` requests, and as many mismatches besides.
    pub(crate) fn new(kept: usize) -> Self {
        Self(Mutex::new(Rings { recent: Ring::new(kept), mismatches: Ring::new(kept) }))
    }

    pub(crate) fn add(&self, record: &Arc<Record>) {
        self.0.lock().recent.push(record);
    }

    /// Keeps a request that was predicted wrongly for longer.
    pub(crate) fn keep(&self, record: &Arc<Record>) {
        self.0.lock().mismatches.push(record);
    }

    pub(crate) fn find(&self, request_id: &str) -> Option<Arc<Record>> {
        let rings = self.0.lock();
        rings.recent.find(request_id).or_else(|| rings.mismatches.find(request_id))
    }
}

impl Ring {
    fn new(kept: usize) -> Self {
        Self { by_id: HashMap::new(), order: VecDeque::new(), kept: kept.max(1) }
    }

    fn push(&mut self, record: &Arc<Record>) {
        let id = &record.request_id;
        if self.by_id.insert(id.clone(), Arc::clone(record)).is_none() {
            self.order.push_back(id.clone());
        }
        if self.order.len() > self.kept
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    fn find(&self, request_id: &str) -> Option<Arc<Record>> {
        self.by_id.get(request_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use identity::ModelName;
    use placement::Policy;

    use super::*;

    fn record(id: &str) -> Arc<Record> {
        Arc::new(Record {
            request_id: id.to_owned(),
            model: ModelName::new("m"),
            policy: Policy::Kv,
            fallback: None,
            block_size: 16,
            media: Vec::new(),
            decision: None,
            appraisals: Vec::new(),
            predicted: None,
            confidence: placement::Confidence::Unknown,
            outcome: Mutex::default(),
        })
    }

    #[test]
    fn old_requests_are_forgotten_and_mismatches_later() {
        let log = RecordLog::new(2);
        for id in ["a", "b", "b", "c"] {
            log.add(&record(id));
        }
        assert!(log.find("a").is_none());
        assert!(log.find("b").is_some() && log.find("c").is_some());
        log.keep(&record("a"));
        assert!(log.find("a").is_some());
    }
}
