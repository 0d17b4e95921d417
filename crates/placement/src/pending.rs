//! Blocks on their way: what earlier dispatches will have put into a holder's cache.
//!
//! ```text
//! dispatch ── first token ── settle bound ──► expired
//!     │            └─ the holder's delta ───► confirmed
//!     └─ failure ──────────────────────────► revoked
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use identity::{BlockKey, Holder};

/// Names one dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(pub u64);

/// How much counts as pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingLimits {
    /// Blocks of all dispatches together; past it a dispatch is not recorded.
    pub blocks_max: usize,
    /// How long a dispatch counts without news.
    pub ttl: Duration,
    /// How long it counts after its first token, until the holder's delta must have come.
    pub settle: Duration,
    /// Requests that may rely on one dispatch; those after them find it crowded and pay elsewhere, which plans a replica.
    pub followers_max: u32,
}

impl Default for PendingLimits {
    fn default() -> Self {
        Self {
            blocks_max: 1 << 20,
            ttl: Duration::from_secs(30),
            settle: Duration::from_secs(2),
            followers_max: 64,
        }
    }
}

/// Pending blocks of all holders.
#[derive(Debug, Default)]
pub struct Pending {
    limits: PendingLimits,
    dispatches: HashMap<DispatchId, Dispatch>,
    /// Short names of the holders that have dispatches, with their number.
    holders: HashMap<Holder, Local>,
    by_key: HashMap<(u32, BlockKey), Vec<DispatchId>>,
    expiries: BTreeSet<(Duration, DispatchId)>,
    blocks: usize,
    next: u64,
    next_local: u32,
}

#[derive(Clone, Copy, Debug)]
struct Local {
    name: u32,
    dispatches: u32,
    blocks: usize,
}

#[derive(Debug)]
struct Dispatch {
    holder: Holder,
    local: u32,
    keys: Box<[BlockKey]>,
    until: Duration,
    followers: u32,
    settled: bool,
}

/// Blocks that a holder is expected to have beyond those it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// How many, in prompt order.
    pub blocks: u32,
    /// How many of them are still being computed, as part of the work that is ahead at the holder.
    pub computing: u32,
    /// The dispatch that brings the last of them.
    pub last: Option<DispatchId>,
}

impl Pending {
    /// Starts with nothing pending.
    #[must_use]
    pub fn new(limits: PendingLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Starts with nothing pending, and with ids that no earlier `life` of the owner has given out.
    #[must_use]
    pub fn in_life(limits: PendingLimits, life: u32) -> Self {
        Self { limits, next: u64::from(life) << 40, ..Self::default() }
    }

    /// Records that a request with these uncached keys goes to a holder; none when nothing is to be recorded.
    pub fn dispatch(&mut self, holder: &Holder, keys: &[BlockKey], now: Duration) -> Option<DispatchId> {
        self.record(holder, keys, now + self.limits.ttl)
    }

    /// Records a dispatch to a holder whose blocks are known by dispatches only: it counts until `until`, and at most
    /// `blocks_max` blocks of the holder count, the latest.
    pub fn approximate(
        &mut self,
        holder: &Holder,
        keys: &[BlockKey],
        blocks_max: usize,
        until: Duration,
    ) -> Option<DispatchId> {
        let keys = keys.get(..blocks_max).unwrap_or(keys);
        while self.holders.get(holder).is_some_and(|local| local.blocks + keys.len() > blocks_max) {
            let of_holder = self.dispatches.iter().filter(|(_, it)| it.holder == *holder);
            let oldest = of_holder.map(|(id, _)| *id).min()?;
            self.end(oldest);
        }
        self.record(holder, keys, until)
    }

    fn record(&mut self, holder: &Holder, keys: &[BlockKey], until: Duration) -> Option<DispatchId> {
        if keys.is_empty() || self.blocks.saturating_add(keys.len()) > self.limits.blocks_max {
            return None;
        }
        self.next += 1;
        let id = DispatchId(self.next);
        let local = self.local(holder, keys.len());
        for key in keys {
            self.by_key.entry((local, *key)).or_default().push(id);
        }
        self.blocks += keys.len();
        self.expiries.insert((until, id));
        let dispatch = Dispatch {
            holder: holder.clone(),
            local,
            keys: keys.into(),
            until,
            followers: 0,
            settled: false,
        };
        self.dispatches.insert(id, dispatch);
        Some(id)
    }

    /// Counts the pending blocks that continue a holder's `matched` blocks of a chain.
    #[must_use]
    pub fn expected(&self, holder: &Holder, chain: &[BlockKey], matched: u32) -> Expected {
        let mut expected = Expected::default();
        if self.dispatches.is_empty() {
            return expected;
        }
        let Some(local) = self.holders.get(holder) else { return expected };
        for key in chain.iter().skip(usize::try_from(matched).unwrap_or(usize::MAX)) {
            let Some((id, dispatch)) = self.bringing(local.name, *key) else { break };
            expected = Expected {
                blocks: expected.blocks + 1,
                computing: expected.computing + u32::from(!dispatch.settled),
                last: Some(id),
            };
        }
        expected
    }

    /// Notes that one more request relies on a dispatch.
    pub fn follow(&mut self, id: DispatchId) {
        if let Some(dispatch) = self.dispatches.get_mut(&id) {
            dispatch.followers = dispatch.followers.saturating_add(1);
        }
    }

    /// Notes that a dispatch's prompt is computed, at a holder that will not confirm it.
    pub fn computed(&mut self, id: DispatchId) {
        if let Some(dispatch) = self.dispatches.get_mut(&id) {
            dispatch.settled = true;
        }
    }

    /// Notes that a dispatch's prompt is computed: its blocks are confirmed soon or never.
    pub fn settle(&mut self, id: DispatchId, now: Duration) {
        if let Some(dispatch) = self.dispatches.get_mut(&id) {
            let until = dispatch.until.min(now + self.limits.settle);
            self.expiries.remove(&(dispatch.until, id));
            self.expiries.insert((until, id));
            dispatch.until = until;
            dispatch.settled = true;
        }
    }

    /// Forgets a dispatch: confirmed by the holder's delta, or failed.
    pub fn end(&mut self, id: DispatchId) {
        let Some(dispatch) = self.dispatches.remove(&id) else { return };
        self.expiries.remove(&(dispatch.until, id));
        self.blocks -= dispatch.keys.len();
        for key in &dispatch.keys {
            if let Some(ids) = self.by_key.get_mut(&(dispatch.local, *key)) {
                ids.retain(|it| *it != id);
                if ids.is_empty() {
                    self.by_key.remove(&(dispatch.local, *key));
                }
            }
        }
        if let Some(local) = self.holders.get_mut(&dispatch.holder) {
            local.dispatches -= 1;
            local.blocks -= dispatch.keys.len();
            if local.dispatches == 0 {
                self.holders.remove(&dispatch.holder);
            }
        }
    }

    /// Forgets what a holder was expected to bring.
    pub fn forget_holder(&mut self, holder: &Holder) {
        let ids = self.dispatches.iter().filter(|(_, it)| it.holder == *holder).map(|(id, _)| *id);
        let ids: Vec<DispatchId> = ids.collect();
        for id in ids {
            self.end(id);
        }
    }

    /// Forgets the dispatches whose time has passed; call it at least as often as dispatches are short-lived.
    pub fn expire(&mut self, now: Duration) -> usize {
        let mut expired = 0;
        while let Some((until, id)) = self.expiries.first().copied()
            && until <= now
        {
            self.end(id);
            expired += 1;
        }
        expired
    }

    /// Returns the holder and keys of a dispatch.
    #[must_use]
    pub fn get(&self, id: DispatchId) -> Option<(&Holder, &[BlockKey])> {
        self.dispatches.get(&id).map(|it| (&it.holder, &*it.keys))
    }

    /// Tells whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dispatches.is_empty()
    }

    /// Counts the pending blocks.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
    }

    /// The short name of a holder that gets one more dispatch.
    fn local(&mut self, holder: &Holder, blocks: usize) -> u32 {
        if let Some(local) = self.holders.get_mut(holder) {
            local.dispatches += 1;
            local.blocks += blocks;
            return local.name;
        }
        self.next_local = self.next_local.wrapping_add(1);
        self.holders.insert(holder.clone(), Local { name: self.next_local, dispatches: 1, blocks });
        self.next_local
    }

    fn bringing(&self, local: u32, key: BlockKey) -> Option<(DispatchId, &Dispatch)> {
        let ids = self.by_key.get(&(local, key))?;
        let mut dispatches = ids.iter().filter_map(|id| Some((*id, self.dispatches.get(id)?)));
        dispatches.find(|(_, it)| it.followers < self.limits.followers_max)
    }
}

#[cfg(test)]
mod tests {
    use identity::{Rank, WorkerId};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: PendingLimits = PendingLimits {
        blocks_max: 40,
        ttl: Duration::from_secs(30),
        settle: Duration::from_secs(2),
        followers_max: 3,
    };

    fn holder(name: &str) -> Holder {
        Holder { worker: WorkerId::new(name), rank: Rank(0) }
    }

    fn keys(range: std::ops::Range<u64>) -> Vec<BlockKey> {
        range.map(BlockKey::new).collect()
    }

    #[test]
    fn expected_blocks_continue_the_match() {
        let mut pending = Pending::new(LIMITS);
        let (a, chain) = (holder("a"), keys(0..10));
        let first = pending.dispatch(&a, &chain[2..6], Duration::ZERO);
        let second = pending.dispatch(&a, &chain[6..8], Duration::ZERO);
        assert_eq!(pending.expected(&a, &chain, 2), Expected { blocks: 6, computing: 6, last: second });
        assert_eq!(pending.expected(&a, &chain, 4), Expected { blocks: 4, computing: 4, last: second });
        assert_eq!(pending.expected(&a, &chain, 1), Expected::default(), "a gap before them");
        assert_eq!(pending.expected(&holder("b"), &chain, 2), Expected::default());
        pending.settle(first.unwrap(), Duration::ZERO);
        assert_eq!(pending.expected(&a, &chain, 2), Expected { blocks: 6, computing: 2, last: second });
        pending.end(second.unwrap());
        assert_eq!(pending.expected(&a, &chain, 2), Expected { blocks: 4, computing: 0, last: first });
    }

    #[test]
    fn a_crowded_dispatch_is_not_relied_on() {
        let mut pending = Pending::new(LIMITS);
        let (a, chain) = (holder("a"), keys(0..4));
        let id = pending.dispatch(&a, &chain, Duration::ZERO).unwrap();
        for _ in 0..LIMITS.followers_max {
            assert_eq!(pending.expected(&a, &chain, 0).blocks, 4);
            pending.follow(id);
        }
        assert_eq!(pending.expected(&a, &chain, 0).blocks, 0);
    }

    #[test]
    fn an_approximate_holder_counts_the_latest_blocks() {
        let (mut pending, a, chain) = (Pending::new(LIMITS), holder("a"), keys(0..20));
        let until = Duration::from_secs(99);
        let first = pending.approximate(&a, &chain[..6], 10, until);
        pending.computed(first.unwrap());
        assert_eq!(pending.expected(&a, &chain, 0), Expected { blocks: 6, computing: 0, last: first });
        pending.approximate(&a, &chain[6..10], 10, until);
        assert_eq!(pending.expected(&a, &chain, 0).blocks, 10);
        pending.approximate(&a, &keys(100..103), 10, until);
        assert_eq!((pending.expected(&a, &chain, 0).blocks, pending.blocks()), (0, 7));
        pending.approximate(&a, &keys(200..250), 10, until);
        assert_eq!(pending.blocks(), 10);
    }

    #[test]
    fn ids_differ_over_lives() {
        let mut pending = Pending::in_life(LIMITS, 7);
        let id = pending.dispatch(&holder("a"), &keys(0..4), Duration::ZERO);
        assert_eq!(id, Some(DispatchId((7 << 40) + 1)));
        pending.end(DispatchId(1));
        assert_eq!(pending.blocks(), 4);
    }

    #[test]
    fn dispatches_end_by_time() {
        let mut pending = Pending::new(LIMITS);
        let (a, chain) = (holder("a"), keys(0..4));
        let id = pending.dispatch(&a, &chain, Duration::ZERO).unwrap();
        assert_eq!(pending.expire(Duration::from_secs(29)), 0);
        pending.settle(id, Duration::from_secs(3));
        assert_eq!(pending.expire(Duration::from_secs(4)), 0);
        assert_eq!(pending.expire(Duration::from_secs(5)), 1);
        assert_eq!((pending.blocks(), pending.by_key.len(), pending.holders.len()), (0, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0_u8..5, 0_u64..12, 1_u64..6), 1..200)) {
            let mut pending = Pending::new(LIMITS);
            let mut oracle: Vec<(DispatchId, usize, Vec<BlockKey>)> = Vec::new();
            let holders = [holder("a"), holder("b")];
            for (step, from, len) in steps {
                let which = usize::try_from(from % 2).unwrap();
                match step {
                    0..=2 => {
                        let keys = keys(from..from + len);
                        let blocks: usize = oracle.iter().map(|it| it.2.len()).sum();
                        let id = pending.dispatch(&holders[which], &keys, Duration::ZERO);
                        prop_assert_eq!(id.is_some(), blocks + keys.len() <= LIMITS.blocks_max);
                        oracle.extend(id.map(|id| (id, which, keys)));
                    }
                    3 if !oracle.is_empty() => {
                        let gone = oracle.swap_remove(usize::try_from(from).unwrap() % oracle.len());
                        pending.end(gone.0);
                    }
                    _ => {
                        pending.forget_holder(&holders[which]);
                        oracle.retain(|it| it.1 != which);
                    }
                }
                let chain = keys(0..20);
                for (which, holder) in holders.iter().enumerate() {
                    for matched in 0..20_u32 {
                        let has = |key: &&BlockKey| oracle.iter().any(|it| it.1 == which && it.2.contains(key));
                        let expected = chain.iter().skip(matched as usize).take_while(has).count();
                        let found = pending.expected(holder, &chain, matched).blocks;
                        prop_assert_eq!(usize::try_from(found).unwrap(), expected);
                    }
                }
                let blocks: usize = oracle.iter().map(|it| it.2.len()).sum();
                prop_assert_eq!(pending.blocks(), blocks);
            }
        }
    }
}
