//! What agents said of themselves: in their beats, the digest of a holder's set at a sequence of a life.

use std::collections::BTreeMap;
use std::sync::Arc;

use identity::{Holder, Incarnation};
use parking_lot::Mutex;
use ports::bus::Message;
use wire::kv::Update;

use crate::invariant::Broken;

/// A state of an agent's set.
type Stand = (Holder, Incarnation, u64);

/// All beats that were sent, whether anybody heard them or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chronicle(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    digests: BTreeMap<Stand, u64>,
    contradictions: Vec<Broken>,
}

impl Chronicle {
    pub(crate) fn note(&self, message: &Message) {
        if !message.subject.contains(".kv.") {
            return;
        }
        let Ok(Update::Beat(beat)) = wire::kv::decode(&message.payload) else { return };
        let mut told = self.0.lock();
        let stand = (beat.holder(), beat.incarnation, beat.seq);
        let before = *told.digests.entry(stand.clone()).or_insert(beat.digest);
        if before != beat.digest {
            let (holder, life, seq) = stand;
            let what = format!("{} says two things of {seq} in life {life}", holder.worker);
            told.contradictions.push(what);
        }
    }

    pub(crate) fn digest(&self, holder: &Holder, life: Incarnation, seq: u64) -> Option<u64> {
        self.0.lock().digests.get(&(holder.clone(), life, seq)).copied()
    }

    /// At all times: a sequence of a life stands for one set.
    pub(crate) fn is_of_one_mind(&self) -> Result<(), Broken> {
        self.0.lock().contradictions.first().cloned().map_or(Ok(()), Err)
    }
}
