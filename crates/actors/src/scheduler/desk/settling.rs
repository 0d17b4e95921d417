//! Dispatches whose blocks the index has not shown yet.

use std::collections::VecDeque;

use identity::BlockKey;
use placement::Pending;

use crate::scheduler::assignment::Trace;
use crate::scheduler::overlap::IndexSource;

/// Dispatches in the order in which they are looked for.
#[derive(Debug, Default)]
pub(super) struct Settling(VecDeque<Trace>);

/// Dispatches that settle at a time; past it the oldest counts as shown.
const SETTLING_MAX: usize = 1024;

/// Dispatches looked for at a time, so that a look costs the same however many settle.
const LOOKS_MAX: usize = 32;

impl Settling {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes a dispatch in; where there was no room, returns the oldest.
    pub(super) fn put(&mut self, trace: Trace) -> Option<Trace> {
        self.0.push_back(trace);
        if self.0.len() > SETTLING_MAX { self.0.pop_front() } else { None }
    }

    /// Looks for some dispatches and takes out those that the index shows; those no longer pending are dropped.
    pub(super) fn shown(&mut self, pending: &Pending, index: &dyn IndexSource) -> Vec<Trace> {
        let mut shown = Vec::new();
        for _ in 0..self.0.len().min(LOOKS_MAX) {
            let Some(trace) = self.0.pop_front() else { break };
            if trace.dispatch.is_none_or(|dispatch| pending.get(dispatch).is_none()) {
                continue;
            }
            if is_shown(&trace, index) {
                shown.push(trace);
            } else {
                self.0.push_back(trace);
            }
        }
        shown
    }
}

/// Tells whether the index shows a dispatch's whole prompt at its holder.
pub(super) fn is_shown(trace: &Trace, index: &dyn IndexSource) -> bool {
    let routing = &trace.request.routing;
    let blocks = routing.chain(trace.seat.worker.card.block_size).map_or(0, <[BlockKey]>::len);
    let sights = index.sights(std::slice::from_ref(&trace.seat), routing);
    sights
        .first()
        .is_some_and(|sight| usize::try_from(sight.matched_blocks).is_ok_and(|shown| shown >= blocks))
}
