//! What is measured, and how.

use serde::{Deserialize, Serialize};

use crate::latency::{Latency, measure as time};
use crate::meter::{heap, median};
use crate::workload::{Event, Naive, Workload};

/// An index under measurement.
pub trait Index {
    /// Applies events; answers CPU nanoseconds of the thread that applied them.
    fn apply(&mut self, workload: &Workload, events: &[Event]) -> u64;
    /// Delivers each (worker, depth), and counts them.
    fn each(&mut self, query: (usize, usize)) -> usize;
    /// Answers in another form the index has, if it has one.
    fn other(&mut self, query: (usize, usize)) -> Option<usize>;
    /// Answers (worker, depth).
    fn answer(&mut self, query: (usize, usize)) -> Vec<(u32, u32)>;
    /// Brings a query's keys near.
    fn touch(&self, query: (usize, usize)) -> u64;
    /// Removes a worker; answers CPU nanoseconds, background work included.
    fn remove(&mut self, worker: u32) -> u64;
    /// Does whatever gives memory back.
    fn tidy(&mut self) {}
}

/// One measurement of one index.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub apply: f64,
    pub heap: f64,
    pub lookup: f64,
    pub lookup_p50: f64,
    pub lookup_p99: f64,
    /// Ours: grouped. `ChainIndex`: its map.
    pub other: Option<f64>,
    pub churn: Option<f64>,
    pub remove: f64,
    pub left: f64,
    pub wrong: usize,
}

pub fn measure(mut index: Box<dyn Index>, workload: &Workload) -> Measured {
    let rate = |blocks: usize, ns: u64| blocks as f64 * 1e3 / ns as f64;
    let before = heap();
    let ns = index.apply(workload, &workload.build);
    let built = heap().saturating_sub(before) as f64;
    let mut out = Measured {
        apply: rate(Workload::blocks(&workload.build), ns),
        heap: built / workload.memberships as f64,
        wrong: wrong(&mut *index, workload),
        ..Measured::default()
    };
    let index = std::cell::RefCell::new(index);
    let touch = |query| index.borrow().touch(query);
    let lookup: Latency = time(&workload.queries, touch, |query| index.borrow_mut().each(query));
    (out.lookup, out.lookup_p50, out.lookup_p99) = (lookup.mean, f64::from(lookup.p50), f64::from(lookup.p99));
    if index.borrow_mut().other(workload.queries[0]).is_some() {
        out.other = Some(time(&workload.queries, touch, |query| index.borrow_mut().other(query).unwrap_or(0)).mean);
    }
    let mut index = index.into_inner();
    if !workload.churn.is_empty() {
        let blocks = Workload::blocks(&workload.churn);
        let mut rates: Vec<f64> = (0..3).map(|_| rate(blocks, index.apply(workload, &workload.churn))).collect();
        out.churn = Some(median(&mut rates));
    }
    let mut removals: Vec<f64> = (0..workload.holders.min(8)).map(|worker| index.remove(worker) as f64 / 1e6).collect();
    out.remove = median(&mut removals);
    for worker in 8..workload.holders {
        index.remove(worker);
    }
    index.tidy();
    out.left = heap().saturating_sub(before) as f64 * 100.0 / built;
    out
}

/// Compares a sample of answers with the naive model.
fn wrong(index: &mut dyn Index, workload: &Workload) -> usize {
    let mut naive = Naive::new(workload.holders);
    workload.build.iter().for_each(|event| naive.apply(workload, event));
    let step = workload.queries.len().div_ceil(300);
    let differs = |query: &&(usize, usize)| {
        let mut answer = index.answer(**query);
        answer.retain(|(_, depth)| *depth > 0);
        answer.sort_unstable();
        answer != naive.matches(&workload.query_keys[query.0..query.0 + query.1])
    };
    workload.queries.iter().step_by(step).filter(differs).count()
}
