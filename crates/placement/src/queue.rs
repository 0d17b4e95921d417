//! Requests that wait for a holder: bounded, by priority, fair among tenants, each with a deadline.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How much waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that wait at a time.
    pub waiting_max: usize,
    /// Shortest and longest advice on when to try again.
    pub retry_after: (Duration, Duration),
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { waiting_max: 1024, retry_after: (Duration::from_secs(1), Duration::from_secs(60)) }
    }
}

/// A request's claim to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Lower is served earlier, as engines have it; 0 is usual.
    pub priority: i32,
    /// Names the tenant.
    pub tenant: u64,
    /// The tenant's share relative to others'; at least 1.
    pub weight: u32,
    /// When waiting becomes pointless.
    pub deadline: Duration,
}

/// The queue is full, or the deadline would pass in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When the backlog is predicted to have drained, within the limits.
    pub retry_after: Duration,
}

/// Requests in the order in which they are to be served.
///
/// Order: priority; then the virtual finish time of start-time fair queueing (Goyal, Vin, Cheng 1996), which is arrival
/// within a tenant; then arrival.
#[derive(Debug)]
pub struct Queue<T> {
    limits: QueueLimits,
    waiting: BTreeMap<Place, Waiting<T>>,
    tenants: HashMap<u64, Tenant>,
    virtual_time: u64,
    arrivals: u64,
    drain: Drain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: i32,
    finish: u64,
    arrival: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    start: u64,
    ticket: Ticket,
}

#[derive(Debug, Default)]
struct Tenant {
    finish: u64,
    waiting: usize,
}

/// Virtual time that one request of a tenant of weight 1 takes.
const SLICE: u64 = 1 << 20;

impl<T> Queue<T> {
    /// Starts empty.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            tenants: HashMap::new(),
            virtual_time: 0,
            arrivals: 0,
            drain: Drain::default(),
        }
    }

    /// Lets an item wait; where the queue was full of less urgent ones, the last of them is put out and returned.
    ///
    /// # Errors
    /// [`Full`], with the item: nothing less urgent waits, or the deadline is before the predicted turn.
    pub fn push(&mut self, ticket: Ticket, item: T, now: Duration) -> Result<Option<T>, (Full, T)> {
        let wait = self.drain.predict(self.waiting.len() + 1, now);
        if wait.is_some_and(|wait| now + wait > ticket.deadline) || ticket.deadline <= now {
            return Err((self.full(now), item));
        }
        let mut put_out = None;
        if self.waiting.len() >= self.limits.waiting_max {
            match self.waiting.last_key_value().map(|(place, _)| *place) {
                Some(last) if last.priority > ticket.priority => put_out = self.remove(last),
                _ => return Err((self.full(now), item)),
            }
        }
        self.arrivals += 1;
        let tenant = self.tenants.entry(ticket.tenant).or_default();
        let start = tenant.finish.max(self.virtual_time);
        let finish = start.saturating_add(SLICE / u64::from(ticket.weight.max(1)));
        tenant.finish = finish;
        tenant.waiting += 1;
        let place = Place { priority: ticket.priority, finish, arrival: self.arrivals };
        self.waiting.insert(place, Waiting { item, start, ticket });
        Ok(put_out.map(|waiting| waiting.item))
    }

    /// Takes the first item that is accepted, looking at no more than `looks_max` of them.
    pub fn take(
        &mut self,
        looks_max: usize,
        now: Duration,
        mut accept: impl FnMut(&mut T) -> bool,
    ) -> Option<T> {
        let mut places = self.waiting.iter_mut().take(looks_max);
        let place = places.find_map(|(place, it)| accept(&mut it.item).then_some(*place))?;
        let waiting = self.remove(place)?;
        self.virtual_time = self.virtual_time.max(waiting.start);
        self.drain.departed(now, !self.waiting.is_empty());
        Some(waiting.item)
    }

    /// Puts out the items whose deadline has passed, and those that are no longer wanted.
    pub fn put_out(&mut self, now: Duration, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let late = self.waiting.iter().filter(|(_, it)| it.ticket.deadline <= now || unwanted(&it.item));
        let places: Vec<Place> = late.map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| self.remove(place)).map(|waiting| waiting.item).collect()
    }

    /// Counts the items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Tells whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Advises when to try again.
    #[must_use]
    pub fn full(&self, now: Duration) -> Full {
        let (least, most) = self.limits.retry_after;
        let wait = self.drain.predict(self.waiting.len() + 1, now).unwrap_or(least);
        Full { retry_after: wait.clamp(least, most) }
    }

    fn remove(&mut self, place: Place) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&place)?;
        if let Some(tenant) = self.tenants.get_mut(&waiting.ticket.tenant) {
            tenant.waiting -= 1;
            if tenant.waiting == 0 {
                self.tenants.remove(&waiting.ticket.tenant);
            }
        }
        Some(waiting)
    }
}

/// How fast the queue drains: an average over the intervals between departures while something waited.
#[derive(Debug, Default)]
struct Drain {
    interval_s: Option<f64>,
    departures: u32,
    busy_since: Option<Duration>,
}

/// Departures before the average counts.
const DEPARTURES_MIN: u32 = 4;

impl Drain {
    fn departed(&mut self, now: Duration, others_wait: bool) {
        if let Some(since) = self.busy_since {
            let interval = now.saturating_sub(since).as_secs_f64();
            self.interval_s =
                Some(self.interval_s.map_or(interval, |average| average + 0.2 * (interval - average)));
            self.departures = self.departures.saturating_add(1);
        }
        self.busy_since = others_wait.then_some(now);
    }

    fn predict(&self, position: usize, now: Duration) -> Option<Duration> {
        let interval = self.interval_s.filter(|_| self.departures >= DEPARTURES_MIN)?;
        let stalled = self.busy_since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64());
        let wait = interval * position as f64;
        Duration::try_from_secs_f64(wait.max(stalled - interval)).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: QueueLimits =
        QueueLimits { waiting_max: 8, retry_after: (Duration::from_secs(1), Duration::from_secs(60)) };

    fn ticket(priority: i32, tenant: u64, weight: u32) -> Ticket {
        Ticket { priority, tenant, weight, deadline: Duration::from_secs(1000) }
    }

    fn drain_all(queue: &mut Queue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.take(usize::MAX, Duration::ZERO, |_| true)).collect()
    }

    fn fill(tickets: &[Ticket]) -> Queue<u32> {
        let mut queue = Queue::new(LIMITS);
        for (item, ticket) in (0..).zip(tickets) {
            assert_eq!(queue.push(*ticket, item, Duration::ZERO), Ok(None));
        }
        queue
    }

    #[test]
    fn priority_then_arrival() {
        let mut queue = fill(&[ticket(0, 1, 1), ticket(5, 1, 1), ticket(-1, 1, 1), ticket(0, 1, 1)]);
        assert_eq!(drain_all(&mut queue), [2, 0, 3, 1]);
        assert!(queue.tenants.is_empty());
    }

    #[test]
    fn tenants_share_by_weight() {
        let (heavy, light) = (ticket(0, 1, 3), ticket(0, 2, 1));
        let mut queue = fill(&[light, light, heavy, heavy, heavy, heavy, heavy, heavy]);
        assert_eq!(drain_all(&mut queue), [2, 3, 4, 0, 5, 6, 7, 1]);
    }

    #[test]
    fn a_full_queue_yields_to_urgency_only() {
        let mut queue = fill(&[ticket(0, 1, 1); 8]);
        assert!(queue.push(ticket(0, 2, 9), 8, Duration::ZERO).is_err());
        assert_eq!(queue.push(ticket(-1, 2, 1), 9, Duration::ZERO), Ok(Some(7)));
        assert_eq!((queue.len(), drain_all(&mut queue)[0]), (8, 9));
    }

    #[test]
    fn deadlines_are_kept_and_foreseen() {
        let mut queue = fill(&[ticket(0, 1, 1); 7]);
        for second in 1..=5 {
            assert!(queue.take(1, Duration::from_secs(second), |_| true).is_some());
        }
        let now = Duration::from_secs(5);
        assert_eq!(queue.full(now), Full { retry_after: Duration::from_secs(3) });
        let soon = |deadline| Ticket { deadline: Duration::from_secs(deadline), ..ticket(0, 1, 1) };
        assert!(queue.push(soon(7), 9, now).is_err(), "its turn comes at 8 s");
        assert!(queue.push(soon(9), 9, now).is_ok());
        assert_eq!(queue.put_out(Duration::from_secs(9), |_| false), [9]);
        assert_eq!(queue.put_out(Duration::from_secs(9), |item| *item == 5), [5]);
        assert_eq!(drain_all(&mut queue), [6]);
    }

    #[test]
    fn what_is_not_accepted_keeps_its_place() {
        let mut queue = fill(&[ticket(0, 1, 1); 4]);
        assert_eq!(queue.take(4, Duration::ZERO, |item| *item == 2), Some(2));
        assert_eq!(queue.take(2, Duration::ZERO, |item| *item == 3), None, "out of sight");
        assert_eq!(drain_all(&mut queue), [0, 1, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn stays_bounded_and_loses_nothing(
            steps in prop::collection::vec((any::<bool>(), -2_i32..3, 0_u64..4, 1_u32..4), 1..200)
        ) {
            let mut queue = Queue::new(LIMITS);
            let (mut entered, mut left) = (0_u32, 0_u32);
            for (item, (push, priority, tenant, weight)) in (0..).zip(steps) {
                if push {
                    match queue.push(ticket(priority, tenant, weight), item, Duration::ZERO) {
                        Ok(put_out) => (entered, left) = (entered + 1, left + u32::from(put_out.is_some())),
                        Err((_, back)) => prop_assert_eq!(back, item),
                    }
                } else {
                    left += u32::from(queue.take(usize::MAX, Duration::ZERO, |_| true).is_some());
                }
                prop_assert!(queue.len() <= LIMITS.waiting_max);
                prop_assert_eq!(queue.len(), (entered - left) as usize);
                prop_assert_eq!(queue.tenants.values().map(|it| it.waiting).sum::<usize>(), queue.len());
            }
        }
    }
}
