//! All replicas of one model: bounded requests, readiness, agreement.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use identity::{Holder, Incarnation};

use super::event::{Ask, Effect, Event, Phase, Status};
use super::machine::Replica;
use super::policy::Policy;

/// The replicas of one model's holders.
#[derive(Clone, Debug)]
pub struct Replicas {
    policy: Policy,
    seed: u64,
    began: Duration,
    replicas: BTreeMap<Holder, Replica>,
    carded: Option<BTreeMap<Holder, Incarnation>>,
    under_way: BTreeSet<(Holder, u32)>,
    waiting: VecDeque<(Holder, u32, Ask)>,
    ready: bool,
}

impl Replicas {
    /// Begins without holders; `seed` decides jitter.
    #[must_use]
    pub const fn new(policy: Policy, seed: u64, now: Duration) -> Self {
        Self {
            policy,
            seed,
            began: now,
            replicas: BTreeMap::new(),
            carded: None,
            under_way: BTreeSet::new(),
            waiting: VecDeque::new(),
            ready: false,
        }
    }

    /// Takes an event of one holder; effects of other holders may follow, as requests wait for each other.
    pub fn step(&mut self, holder: &Holder, event: Event, now: Duration) -> Vec<(Holder, Effect)> {
        if let Event::Answered { ticket, .. } = &event {
            self.under_way.remove(&(holder.clone(), *ticket));
        }
        let heard = matches!(event, Event::Delta(_) | Event::Beat(_) | Event::Known(_));
        let mut out = Vec::new();
        if heard && !self.replicas.contains_key(holder) && self.replicas.len() < self.policy.holders_max {
            self.admit(holder);
        }
        if let Some(replica) = self.replicas.get_mut(holder) {
            for effect in replica.step(event, now) {
                match effect {
                    Effect::Ask { ticket, ask } => self.waiting.push_back((holder.clone(), ticket, ask)),
                    effect @ Effect::Index(_) => out.push((holder.clone(), effect)),
                }
            }
        }
        self.let_ask(&mut out);
        out
    }

    /// Tells every holder the same.
    pub fn step_all(&mut self, event: &Event, now: Duration) -> Vec<(Holder, Effect)> {
        let holders: Vec<Holder> = self.replicas.keys().cloned().collect();
        holders.iter().flat_map(|holder| self.step(holder, event.clone(), now)).collect()
    }

    /// Lets time pass for every holder, and forgets those without card that are silent.
    pub fn tick(&mut self, now: Duration) -> Vec<(Holder, Effect)> {
        let carded = self.carded.as_ref();
        let forgotten = self.replicas.iter().filter(|(holder, replica)| {
            let silent =
                replica.sign_at().is_none_or(|at| now.saturating_sub(at) >= self.policy.forget_after);
            silent && carded.is_some_and(|carded| !carded.contains_key(holder))
        });
        let forgotten: Vec<Holder> = forgotten.map(|(holder, _)| holder.clone()).collect();
        let mut out = Vec::new();
        for holder in forgotten {
            out.extend(self.step(&holder, Event::Leave, now));
            self.replicas.remove(&holder);
        }
        out.extend(self.step_all(&Event::Tick, now));
        out
    }

    /// Learns which holders have cards, with the oldest life that counts.
    pub fn set_carded(
        &mut self,
        carded: BTreeMap<Holder, Incarnation>,
        now: Duration,
    ) -> Vec<(Holder, Effect)> {
        let mut out = Vec::new();
        for (holder, floor) in &carded {
            if !self.replicas.contains_key(holder) {
                self.admit(holder);
            }
            let known = self.carded.as_ref().and_then(|before| before.get(holder));
            if known != Some(floor) {
                out.extend(self.step(holder, Event::Floor(*floor), now));
            }
        }
        self.carded = Some(carded);
        out
    }

    /// Tells whether every carded holder has been live in its present life, or is refused, or the wait is over; latches.
    pub fn is_ready(&mut self, now: Duration) -> bool {
        let settled = self.carded.as_ref().is_some_and(|carded| {
            carded.keys().all(|holder| {
                self.replicas
                    .get(holder)
                    .is_some_and(|replica| replica.was_live() || replica.status().phase == Phase::Refused)
            })
        });
        self.ready |= settled || now.saturating_sub(self.began) >= self.policy.readiness_patience;
        self.ready
    }

    /// Lists the holders and where they stand.
    pub fn statuses(&self) -> impl Iterator<Item = (&Holder, &Status)> {
        self.replicas.iter().map(|(holder, replica)| (holder, replica.status()))
    }

    /// Returns where a holder stands.
    #[must_use]
    pub fn status(&self, holder: &Holder) -> Option<&Status> {
        self.replicas.get(holder).map(Replica::status)
    }

    /// Counts the requests under way.
    #[must_use]
    pub fn asks(&self) -> usize {
        self.under_way.len()
    }

    fn admit(&mut self, holder: &Holder) {
        let mut hasher = DefaultHasher::new();
        (self.seed, holder).hash(&mut hasher);
        let seed = hasher.finish();
        let replica =
            if self.ready { Replica::new(self.policy, seed) } else { Replica::joining(self.policy, seed) };
        self.replicas.insert(holder.clone(), replica);
    }

    fn let_ask(&mut self, out: &mut Vec<(Holder, Effect)>) {
        while self.under_way.len() < self.policy.asks_max {
            let Some((holder, ticket, ask)) = self.waiting.pop_front() else { return };
            let wanted = self.replicas.get(&holder).is_some_and(|replica| replica.awaits(ticket));
            if wanted {
                self.under_way.insert((holder.clone(), ticket));
                out.push((holder, Effect::Ask { ticket, ask }));
            }
        }
    }
}
