//! Which holder recently had which media item, whatever stood before it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use identity::{Holder, MediaKey};

use crate::candidate::NearMedia;

/// How much is remembered, per holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidencyLimits {
    /// Items; the least recently seen are forgotten first.
    pub items_max: usize,
    /// How long an item counts after it was last seen.
    pub ttl: Duration,
}

impl Default for ResidencyLimits {
    fn default() -> Self {
        Self { items_max: 4096, ttl: Duration::from_secs(600) }
    }
}

/// How long after its first dispatch to a holder an item counts as new there, arrived or not: those who ask for it at the
/// same moment may not all be placed yet.
const FRESH_FOR: Duration = Duration::from_secs(3);

/// Media items by holder: a signal beside prefix overlap, bounded per holder in number and age.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    limits: ResidencyLimits,
    holders: HashMap<Holder, Recent>,
    /// Of holders that say how much they remember.
    own: HashMap<Holder, ResidencyLimits>,
}

#[derive(Clone, Debug, Default)]
struct Recent {
    items: HashMap<MediaKey, Seen>,
    /// Sightings in order of time; outdated ones are skipped.
    order: VecDeque<(u64, MediaKey)>,
    sightings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    sighting: u64,
    at: Duration,
    /// When it was news.
    since: Duration,
    /// A dispatch is to bring it and has not yet.
    coming: bool,
}

impl Residency {
    /// Starts with nothing known.
    #[must_use]
    pub fn new(limits: ResidencyLimits) -> Self {
        Self { limits, holders: HashMap::new(), own: HashMap::new() }
    }

    /// Sets how much a holder remembers, where it says so; what is more is forgotten with the next item.
    pub fn limit(&mut self, holder: &Holder, limits: ResidencyLimits) {
        if self.limits_of(holder) != limits {
            self.own.insert(holder.clone(), limits);
        }
    }

    fn limits_of(&self, holder: &Holder) -> ResidencyLimits {
        self.own.get(holder).copied().unwrap_or(self.limits)
    }

    /// Notes that a request brings an item to a holder. Answers whether that is news: then the item counts as coming
    /// until it has [`arrived`](Self::arrived).
    pub fn see(&mut self, holder: &Holder, media: MediaKey, now: Duration) -> bool {
        if !self.holders.contains_key(holder) {
            self.holders.insert(holder.clone(), Recent::default());
        }
        let limits = self.limits_of(holder);
        let Some(recent) = self.holders.get_mut(holder) else { return false };
        recent.see(media, now, &limits)
    }

    /// Notes that an item that was coming is there.
    pub fn arrived(&mut self, holder: &Holder, media: MediaKey) {
        if let Some(seen) = self.holders.get_mut(holder).and_then(|recent| recent.items.get_mut(&media)) {
            seen.coming = false;
        }
    }

    /// Notes that a holder's engine has just had an item, whoever brought it. That its blocks leave the KV cache says
    /// nothing of it: what was encoded is kept apart, and leaves by number and age.
    pub fn had(&mut self, holder: &Holder, media: MediaKey, now: Duration) {
        self.see(holder, media, now);
        self.arrived(holder, media);
    }

    /// Forgets an item that was coming, as when the request that would have brought it failed; one that has arrived
    /// stays.
    pub fn revoke(&mut self, holder: &Holder, media: MediaKey) {
        if let Some(recent) = self.holders.get_mut(holder)
            && recent.items.get(&media).is_some_and(|seen| seen.coming)
        {
            recent.items.remove(&media);
        }
    }

    /// Forgets an item of a holder.
    pub fn forget(&mut self, holder: &Holder, media: MediaKey) {
        if let Some(recent) = self.holders.get_mut(holder) {
            recent.items.remove(&media);
        }
    }

    /// Forgets all of a holder: its engine is another now, or gone.
    pub fn forget_holder(&mut self, holder: &Holder) {
        self.holders.remove(holder);
    }

    /// Keeps only the holders that still exist.
    pub fn retain(&mut self, exists: impl Fn(&Holder) -> bool) {
        self.holders.retain(|holder, _| exists(holder));
        self.own.retain(|holder, _| exists(holder));
    }

    /// Sums what a holder has of a request's media, given sorted; `payload_free` are those it must have.
    ///
    /// A repeated item counts as near from its second occurrence on: it is encoded once.
    #[must_use]
    pub fn near(&self, holder: &Holder, wanted: Query<'_>, now: Duration) -> NearMedia {
        if wanted.multiset.is_empty() && wanted.payload_free.is_empty() {
            return NearMedia::default();
        }
        let (recent, ttl) = (self.holders.get(holder), self.limits_of(holder).ttl);
        let seen = |media: MediaKey| recent.and_then(|recent| recent.seen(media, now, ttl));
        let mut near = NearMedia {
            lacks_payload_free: wanted.payload_free.iter().any(|media| seen(*media).is_none()),
            ..NearMedia::default()
        };
        let mut before = None;
        for (media, tokens) in wanted.multiset {
            let repeated = before.replace(*media) == Some(*media);
            let seen = seen(*media);
            if repeated || seen.is_some() {
                near.items += 1;
                near.tokens = near.tokens.saturating_add(*tokens);
            }
            let Some(seen) = seen.filter(|_| !repeated) else { continue };
            near.fresh |= seen.coming || now.saturating_sub(seen.since) < FRESH_FOR;
            if seen.coming {
                near.coming_tokens = near.coming_tokens.saturating_add(*tokens);
            }
        }
        near
    }

    /// Counts the items remembered of a holder.
    #[must_use]
    pub fn len(&self, holder: &Holder) -> usize {
        self.holders.get(holder).map_or(0, |recent| recent.items.len())
    }
}

/// Which media a request has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    /// (media key, tokens) of each item, sorted.
    pub multiset: &'a [(MediaKey, u32)],
    /// Items that come without payload.
    pub payload_free: &'a [MediaKey],
}

impl Recent {
    fn see(&mut self, media: MediaKey, now: Duration, limits: &ResidencyLimits) -> bool {
        self.sightings += 1;
        let before = self.seen(media, now, limits.ttl);
        let coming = before.is_none_or(|before| before.coming);
        let since = before.map_or(now, |before| before.since);
        self.items.insert(media, Seen { sighting: self.sightings, at: now, since, coming });
        self.order.push_back((self.sightings, media));
        while self.items.len() > limits.items_max {
            let Some((sighting, oldest)) = self.order.pop_front() else { break };
            if self.items.get(&oldest).is_some_and(|it| it.sighting == sighting) {
                self.items.remove(&oldest);
            }
        }
        if self.order.len() > limits.items_max.saturating_mul(2).saturating_add(16) {
            let items = &self.items;
            self.order
                .retain(|(sighting, media)| items.get(media).is_some_and(|it| it.sighting == *sighting));
        }
        before.is_none()
    }

    fn seen(&self, media: MediaKey, now: Duration, ttl: Duration) -> Option<Seen> {
        self.items.get(&media).copied().filter(|seen| now.saturating_sub(seen.at) <= ttl)
    }
}

#[cfg(test)]
mod tests {
    use identity::{Rank, WorkerId};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: ResidencyLimits = ResidencyLimits { items_max: 4, ttl: Duration::from_secs(10) };

    fn holder(name: &str) -> Holder {
        Holder { worker: WorkerId::new(name), rank: Rank(0) }
    }

    const fn key(raw: u64) -> MediaKey {
        MediaKey::new(raw)
    }

    #[test]
    fn duplicates_count_once_as_far() {
        let residency = Residency::new(LIMITS);
        let multiset = [(key(1), 10), (key(1), 10), (key(2), 5)];
        let near =
            residency.near(&holder("a"), Query { multiset: &multiset, payload_free: &[] }, Duration::ZERO);
        assert_eq!(near, NearMedia { items: 1, tokens: 10, ..NearMedia::default() });
    }

    #[test]
    fn items_come_and_arrive() {
        let mut residency = Residency::new(LIMITS);
        let query = Query { multiset: &[(key(1), 10), (key(1), 10)], payload_free: &[] };
        let near = |residency: &Residency, now| residency.near(&holder("a"), query, now);
        assert!(residency.see(&holder("a"), key(1), Duration::ZERO));
        assert!(!residency.see(&holder("a"), key(1), Duration::ZERO));
        let coming =
            NearMedia { items: 2, tokens: 20, coming_tokens: 10, fresh: true, lacks_payload_free: false };
        assert_eq!(near(&residency, FRESH_FOR), coming);
        residency.arrived(&holder("a"), key(1));
        assert!(!residency.see(&holder("a"), key(1), Duration::from_secs(2)));
        let arrived = NearMedia { coming_tokens: 0, ..coming };
        assert_eq!(near(&residency, Duration::from_secs(2)), arrived);
        assert_eq!(near(&residency, FRESH_FOR), NearMedia { fresh: false, ..arrived });
    }

    #[test]
    fn what_an_engine_had_stays_when_a_request_fails() {
        let mut residency = Residency::new(LIMITS);
        let multiset = [(key(1), 10), (key(2), 10)];
        let near = |residency: &Residency| {
            residency.near(&holder("a"), Query { multiset: &multiset, payload_free: &[] }, Duration::ZERO)
        };
        assert!(residency.see(&holder("a"), key(1), Duration::ZERO));
        assert!(residency.see(&holder("a"), key(2), Duration::ZERO));
        residency.had(&holder("a"), key(1), Duration::ZERO);
        assert_eq!(near(&residency).coming_tokens, 10);
        residency.revoke(&holder("a"), key(1));
        residency.revoke(&holder("a"), key(2));
        assert_eq!(near(&residency), NearMedia { items: 1, tokens: 10, fresh: true, ..NearMedia::default() });
    }

    #[test]
    fn a_holder_remembers_as_much_as_it_says() {
        let mut residency = Residency::new(LIMITS);
        residency.limit(&holder("small"), ResidencyLimits { items_max: 1, ttl: Duration::from_secs(1) });
        for name in ["small", "large"] {
            for raw in [1, 2] {
                residency.see(&holder(name), key(raw), Duration::ZERO);
            }
        }
        let near = |name: &str, raw: u64, at_s: u64| {
            let multiset = [(key(raw), 1)];
            let query = Query { multiset: &multiset, payload_free: &[] };
            residency.near(&holder(name), query, Duration::from_secs(at_s)).items == 1
        };
        assert!(!near("small", 1, 0) && near("small", 2, 1) && !near("small", 2, 2));
        assert!(near("large", 1, 2) && near("large", 2, 2));
    }

    #[test]
    fn items_without_payload_must_be_resident() {
        let mut residency = Residency::new(LIMITS);
        let query = Query { multiset: &[(key(1), 10)], payload_free: &[key(1)] };
        assert!(residency.near(&holder("a"), query, Duration::ZERO).lacks_payload_free);
        assert!(residency.see(&holder("a"), key(1), Duration::ZERO));
        assert!(!residency.near(&holder("a"), query, Duration::from_secs(10)).lacks_payload_free);
        assert!(residency.near(&holder("a"), query, Duration::from_secs(11)).lacks_payload_free);
        assert!(residency.near(&holder("b"), query, Duration::ZERO).lacks_payload_free);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn keeps_the_latest_items(steps in prop::collection::vec((0_u64..8, 0_u64..3, any::<bool>()), 1..300)) {
            let (mut residency, mut oracle) = (Residency::new(LIMITS), Vec::<(MediaKey, Duration)>::new());
            let (a, mut now) = (holder("a"), Duration::ZERO);
            for (raw, gap, forget) in steps {
                now += Duration::from_secs(gap);
                oracle.retain(|(it, _)| *it != key(raw));
                if forget {
                    residency.forget(&a, key(raw));
                } else {
                    residency.see(&a, key(raw), now);
                    oracle.push((key(raw), now));
                    if oracle.len() > LIMITS.items_max {
                        oracle.remove(0);
                    }
                }
                prop_assert!(residency.len(&a) <= LIMITS.items_max);
                let order = residency.holders.get(&a).map_or(0, |recent| recent.order.len());
                prop_assert!(order <= 2 * LIMITS.items_max + 16);
                for raw in 0..8 {
                    let multiset = [(key(raw), 1)];
                    let near = residency.near(&a, Query { multiset: &multiset, payload_free: &[] }, now);
                    let expected = oracle.iter().any(|(it, at)| *it == key(raw) && now - *at <= LIMITS.ttl);
                    prop_assert_eq!(near.items == 1, expected);
                }
            }
        }
    }
}
