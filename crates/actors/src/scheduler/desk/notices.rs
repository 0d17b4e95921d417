//! Pending blocks across frontends: what this one says of its dispatches, and what it hears of others'.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use identity::{BlockKey, Holder};
use placement::{KeyChain, Pending, Policy, RoutingRequest};
use wire::notice::{News, Notice, Notices};

use super::Desk;
use crate::directory::Fleet;
use crate::scheduler::assignment::{Origin, Trace};
use crate::scheduler::overlap::IndexSource;
use crate::scheduler::request::ScheduleRequest;

/// Other frontends' dispatches that are pending here.
#[derive(Debug, Default)]
pub(super) struct Heard(HashMap<(String, u64), Trace>);

/// Dispatches of others at a time; further ones are not believed.
const HEARD_MAX: usize = 8192;
/// Blocks of a prompt that are told, from its beginning: 4 KiB.
const KEYS_MAX: usize = 512;
/// A text prompt that brings fewer blocks than this is not worth telling of.
const BLOCKS_MIN: usize = 8;
/// Notices kept until they are taken.
const UNSAID_MAX: usize = 4096;

impl Heard {
    /// Forgets the dispatches that no longer count.
    pub(super) fn forget_ended(&mut self, pending: &Pending) {
        self.0.retain(|_, trace| trace.dispatch.is_some_and(|dispatch| pending.get(dispatch).is_some()));
    }
}

impl Desk {
    /// Tells other frontends that a dispatch has begun, if it brings enough.
    pub(super) fn say_begun(&mut self, trace: &Trace, matched: u32) {
        let Some((_, pending)) = trace.dispatch.and_then(|dispatch| self.pending.get(dispatch)) else {
            return;
        };
        if trace.new_media.is_empty() && pending.len() < BLOCKS_MIN {
            return;
        }
        let block_size = trace.seat.worker.card.block_size;
        let chain = trace.request.routing.chain(block_size).unwrap_or(&[]);
        let known = u32::try_from(chain.len().saturating_sub(pending.len())).unwrap_or(matched);
        let news = News::Begun {
            holder: trace.seat.holder.clone(),
            block_size,
            known,
            keys: chain.get(..KEYS_MAX).unwrap_or(chain).to_vec(),
            media: trace.new_media.clone(),
        };
        self.say(trace, news);
    }

    /// Tells other frontends what became of a dispatch of this one.
    pub(super) fn say(&mut self, trace: &Trace, news: News) {
        let own = matches!(trace.origin, Origin::Own);
        if let Some(dispatch) = trace.dispatch.filter(|_| own && self.unsaid.len() < UNSAID_MAX) {
            self.unsaid.push(Notice { model: self.model.clone(), dispatch: dispatch.0, news });
        }
    }

    /// Takes note of what another frontend says.
    pub(in crate::scheduler) fn hear(
        &mut self,
        notices: &Notices,
        fleet: &Fleet,
        index: &dyn IndexSource,
        now: Duration,
    ) {
        let model = self.model.clone();
        for notice in notices.notices.iter().filter(|notice| notice.model == model) {
            let name = (notices.frontend.clone(), notice.dispatch);
            match &notice.news {
                News::Begun { holder, block_size, known, keys, media } => {
                    let known = usize::try_from(*known).unwrap_or(usize::MAX);
                    let chain = KeyChain { block_size: *block_size, keys: keys.clone() };
                    let Some(mut trace) = self.foreign(holder, chain, known, (fleet, now)) else { continue };
                    let news = media.iter().filter(|media| self.residency.see(holder, **media, now));
                    trace.new_media = news.copied().collect();
                    self.heard.0.insert(name, trace.clone());
                    self.settle(trace, index);
                }
                News::Computed => {
                    let Some(trace) = self.heard.0.get(&name) else { continue };
                    for media in &trace.new_media {
                        self.residency.arrived(&trace.seat.holder, *media);
                    }
                    if let Some(dispatch) = trace.dispatch {
                        self.pending.settle(dispatch, now);
                    }
                }
                News::Confirmed => {
                    let dispatch = self.heard.0.remove(&name).and_then(|trace| trace.dispatch);
                    dispatch.into_iter().for_each(|dispatch| self.pending.end(dispatch));
                }
                News::Failed => {
                    if let Some(trace) = self.heard.0.remove(&name) {
                        self.failed(&trace);
                    }
                }
            }
        }
    }

    /// Records another frontend's dispatch; none where it is nothing to count on.
    fn foreign(
        &mut self,
        holder: &Holder,
        chain: KeyChain,
        known: usize,
        (fleet, now): (&Fleet, Duration),
    ) -> Option<Trace> {
        if self.heard.0.len() >= HEARD_MAX {
            return None;
        }
        let seat = fleet.seats(&self.model).iter().find(|seat| seat.holder == *holder)?.clone();
        if seat.worker.card.block_size != chain.block_size {
            return None;
        }
        let uncached: &[BlockKey] = chain.keys.get(known..).unwrap_or(&[]);
        let dispatch = self.pending.dispatch(holder, uncached, now);
        let routing = RoutingRequest { chains: vec![chain], ..RoutingRequest::default() };
        Some(Trace {
            seat,
            request: Arc::new(ScheduleRequest::new(Arc::new(routing), Policy::Kv)),
            dispatch,
            new_media: Vec::new(),
            dispatched_at: now,
            prefill_tokens: 0.0,
            encode_tokens: 0.0,
            origin: Origin::Foreign,
        })
    }
}
