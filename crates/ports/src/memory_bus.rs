//! The bus within one process, with faults by seed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bus::{Bus, Error, Link, Message, Received, Subscription, is_pattern, is_subject, matches};
use crate::dice::Dice;
use crate::gap_queue::GapQueue;

/// NATS's default.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What goes wrong between publisher and subscriber, each delivery on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Decides every case; the same seed and the same messages give the same faults.
    pub seed: u64,
    /// Deliveries of a thousand that are lost without notice.
    pub drop_permille: u16,
    /// Deliveries of a thousand that happen twice, the second time like a reordered one.
    pub duplicate_permille: u16,
    /// Deliveries of a thousand that later messages may overtake, by up to 20 ms.
    pub reorder_permille: u16,
    /// Every delivery takes up to this long, and keeps no order.
    pub delay_max: Duration,
}

const REORDER_MAX: Duration = Duration::from_millis(20);

/// One client of an in-memory bus; its clones are the same client.
#[derive(Clone)]
pub struct InMemoryBus {
    hub: Arc<Hub>,
    client: Arc<Client>,
}

/// What all clients share.
struct Hub {
    seats: Mutex<BTreeMap<u64, Seat>>,
    next_id: AtomicU64,
    faults: Mutex<Faults>,
    dice: Dice,
    delayed: Mutex<JoinSet<()>>,
}

/// One client's connection.
struct Client {
    link: watch::Sender<Link>,
}

/// One subscription as the hub sees it.
struct Seat {
    pattern: String,
    queue: GapQueue,
    client: Weak<Client>,
}

impl fmt::Debug for InMemoryBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryBus").field("link", &*self.client.link.borrow()).finish_non_exhaustive()
    }
}

impl Default for InMemoryBus {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.seats.get_mut().values().for_each(|seat| seat.queue.close());
    }
}

impl InMemoryBus {
    /// Makes a faultless bus and its first client.
    #[must_use]
    pub fn new() -> Self {
        let hub = Hub {
            seats: Mutex::default(),
            next_id: AtomicU64::new(0),
            faults: Mutex::default(),
            dice: Dice::new(0),
            delayed: Mutex::new(JoinSet::new()),
        };
        Self { hub: Arc::new(hub), client: Client::connected() }
    }

    /// Makes another client of the same bus, with a link of its own.
    #[must_use]
    pub fn attach(&self) -> Self {
        Self { hub: Arc::clone(&self.hub), client: Client::connected() }
    }

    /// Sets what goes wrong from now on, for all clients.
    pub fn set_faults(&self, faults: Faults) {
        self.hub.dice.reseed(faults.seed);
        *self.hub.faults.lock() = faults;
    }

    /// Cuts or heals this client's link; its subscriptions see a gap when it heals.
    pub fn set_link(&self, link: Link) {
        let before = self.client.link.send_replace(link);
        if before == Link::Down && link == Link::Up {
            let seats = self.hub.seats.lock();
            let ours = seats.values().filter(|seat| seat.client.as_ptr() == Arc::as_ptr(&self.client));
            ours.for_each(|seat| seat.queue.push_gap());
        }
    }

    /// Ends all subscriptions of all clients.
    pub fn close(&self) {
        std::mem::take(&mut *self.hub.seats.lock()).values().for_each(|seat| seat.queue.close());
    }

    fn check(&self, message: &Message) -> Result<(), Error> {
        if !is_subject(&message.subject) {
            return Err(Error::Subject { subject: message.subject.clone() });
        }
        if message.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::TooLarge { bytes: message.payload.len(), bytes_max: PAYLOAD_BYTES_MAX });
        }
        if *self.client.link.borrow() == Link::Down {
            return Err(Error::Disconnected);
        }
        Ok(())
    }

    fn take_seat(&self, pattern: &str, queue_max: usize) -> Occupied {
        let queue = GapQueue::new(queue_max);
        let id = self.hub.next_id.fetch_add(1, Ordering::Relaxed);
        let seat =
            Seat { pattern: pattern.to_owned(), queue: queue.clone(), client: Arc::downgrade(&self.client) };
        self.hub.seats.lock().insert(id, seat);
        Occupied { id, queue, hub: Arc::downgrade(&self.hub), _client: Arc::clone(&self.client) }
    }
}

impl Client {
    fn connected() -> Arc<Self> {
        Arc::new(Self { link: watch::Sender::new(Link::Up) })
    }
}

impl Seat {
    fn reachable(&self) -> bool {
        self.client.upgrade().is_some_and(|client| *client.link.borrow() == Link::Up)
    }
}

impl Hub {
    /// Delivers to every matching subscription and counts them.
    fn deliver(self: &Arc<Self>, message: &Message) -> usize {
        let seats = self.seats.lock();
        let mut matched = 0;
        for (id, seat) in seats.iter().filter(|(_, seat)| matches(&seat.pattern, &message.subject)) {
            matched += 1;
            self.deliver_one(*id, seat, message);
        }
        matched
    }

    fn deliver_one(self: &Arc<Self>, id: u64, seat: &Seat, message: &Message) {
        let faults = *self.faults.lock();
        if self.dice.chance(faults.drop_permille) {
            return;
        }
        let reordered = self.dice.chance(faults.reorder_permille);
        let delay_max = faults.delay_max.max(if reordered { REORDER_MAX } else { Duration::ZERO });
        if delay_max.is_zero() {
            if seat.reachable() {
                seat.queue.push(message.clone());
            }
        } else {
            self.deliver_later(id, message.clone(), delay_max);
        }
        if self.dice.chance(faults.duplicate_permille) {
            self.deliver_later(id, message.clone(), faults.delay_max.max(REORDER_MAX));
        }
    }

    fn deliver_later(self: &Arc<Self>, id: u64, message: Message, delay_max: Duration) {
        let most_us = u64::try_from(delay_max.as_micros()).unwrap_or(u64::MAX).max(1);
        let delay = Duration::from_micros(self.dice.roll() % most_us);
        let hub = Arc::downgrade(self);
        let mut delayed = self.delayed.lock();
        while delayed.try_join_next().is_some() {}
        delayed.spawn(async move {
            sleep(delay).await;
            let Some(hub) = hub.upgrade() else { return };
            if let Some(seat) = hub.seats.lock().get(&id)
                && seat.reachable()
            {
                seat.queue.push(message);
            }
        });
    }
}

#[async_trait]
impl Bus for InMemoryBus {
    async fn publish(&self, message: Message) -> Result<(), Error> {
        self.check(&message)?;
        self.hub.deliver(&message);
        Ok(())
    }

    async fn request(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.check(&message)?;
        let subject = message.subject.clone();
        let inbox = format!("_INBOX.{}", self.hub.next_id.fetch_add(1, Ordering::Relaxed));
        let seat = self.take_seat(&inbox, 1);
        if self.hub.deliver(&Message { reply: Some(inbox), ..message }) == 0 {
            return Err(Error::NoResponder { subject });
        }
        match timeout(deadline, seat.queue.next()).await {
            Ok(Some(Received::Message(answer))) => Ok(answer),
            Ok(Some(Received::Gap) | None) => Err(Error::Disconnected),
            Err(_) => Err(Error::Timeout { subject, deadline }),
        }
    }

    async fn subscribe(&self, pattern: &str, queue_max: usize) -> Result<Box<dyn Subscription>, Error> {
        if !is_pattern(pattern) {
            return Err(Error::Subject { subject: pattern.to_owned() });
        }
        Ok(Box::new(self.take_seat(pattern, queue_max)))
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.client.link.subscribe()
    }

    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
}

/// One subscription as its reader sees it.
struct Occupied {
    id: u64,
    queue: GapQueue,
    hub: Weak<Hub>,
    _client: Arc<Client>,
}

impl fmt::Debug for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.seats.lock().remove(&self.id);
        }
    }
}

#[async_trait]
impl Subscription for Occupied {
    async fn next(&mut self) -> Option<Received> {
        self.queue.next().await
    }
}
