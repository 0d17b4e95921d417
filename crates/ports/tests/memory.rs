//! The in-memory adapters under the suites that every adapter passes, and their faults.
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::bus::{Link, Message, Received};
use ports::memory_bus::Faults;
use ports::registry::{Entry, Event};
use ports::{Bus, Clock, InMemoryBus, InMemoryRegistry, Registry, TokioClock, conformance};

/// Clients of an in-memory adapter, all of which are cut off together.
struct Clients<T>(T, Mutex<Vec<T>>);

#[async_trait]
impl conformance::bus::Harness for Clients<InMemoryBus> {
    async fn connect(&self) -> Arc<dyn Bus> {
        let client = self.0.attach();
        self.1.lock().push(client.clone());
        Arc::new(client)
    }
    async fn cut(&self) {
        self.1.lock().iter().for_each(|client| client.set_link(Link::Down));
    }
    async fn heal(&self) {
        self.1.lock().iter().for_each(|client| client.set_link(Link::Up));
    }
}

#[async_trait]
impl conformance::registry::Harness for Clients<InMemoryRegistry> {
    async fn connect(&self) -> Arc<dyn Registry> {
        let client = self.0.attach();
        self.1.lock().push(client.clone());
        Arc::new(client)
    }
    async fn cut(&self) {
        self.1.lock().iter().for_each(|client| client.set_reachable(false));
    }
    async fn heal(&self) {
        self.1.lock().iter().for_each(|client| client.set_reachable(true));
    }
    async fn expire(&self, key: &str) {
        self.0.expire(key);
    }
    async fn compact(&self) {
        self.0.compact();
    }
}

#[tokio::test(start_paused = true)]
async fn the_bus_conforms() {
    conformance::bus::check(&Clients(InMemoryBus::new(), Mutex::default())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_registry_conforms() {
    let registry = InMemoryRegistry::new(Arc::new(TokioClock::system()));
    conformance::registry::check(&Clients(registry, Mutex::default())).await.unwrap();
}

#[tokio::test]
async fn the_clock_conforms() {
    conformance::clock::check(&TokioClock::system()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_simulated_clock_conforms() {
    conformance::clock::check(&TokioClock::from_wall(1_790_000_000_000)).await.unwrap();
    assert_eq!(TokioClock::from_wall(7).wall_ms(), 7);
}

async fn publish_numbers(bus: &InMemoryBus, count: u32) -> Vec<u32> {
    let mut sub = bus.attach().subscribe("numbers", 10_000).await.unwrap();
    for number in 0..count {
        let payload = number.to_string().into();
        bus.publish(Message { subject: "numbers".to_owned(), payload, ..Message::default() }).await.unwrap();
    }
    let mut seen = Vec::new();
    while let Ok(Some(Received::Message(message))) =
        tokio::time::timeout(Duration::from_secs(1), sub.next()).await
    {
        seen.push(std::str::from_utf8(&message.payload).unwrap().parse().unwrap());
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn faults_happen_at_their_rates_and_by_seed() {
    let faults = Faults {
        seed: 7,
        drop_permille: 200,
        duplicate_permille: 100,
        reorder_permille: 300,
        delay_max: Duration::ZERO,
    };
    let mut runs = Vec::new();
    for _ in 0..2 {
        let bus = InMemoryBus::new();
        bus.set_faults(faults);
        runs.push(publish_numbers(&bus, 2000).await);
    }
    assert_eq!(runs[0], runs[1], "the same seed gives the same faults");
    let seen = &runs[0];
    let mut distinct = seen.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let (lost, twice) = (2000 - distinct.len(), seen.len() - distinct.len());
    assert!((300..500).contains(&lost), "{lost} of 2000 lost at 20 %");
    assert!((80..240).contains(&twice), "{twice} of 1600 twice at 10 %");
    let overtaken = seen.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(overtaken >= 10, "only {overtaken} overtook");
}

#[tokio::test(start_paused = true)]
async fn delays_lose_nothing() {
    let bus = InMemoryBus::new();
    bus.set_faults(Faults { seed: 1, delay_max: Duration::from_millis(50), ..Faults::default() });
    let mut seen = publish_numbers(&bus, 500).await;
    assert!(!seen.is_sorted());
    seen.sort_unstable();
    assert_eq!(seen, (0..500).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn one_client_can_be_cut_off_alone() {
    let bus = InMemoryBus::new();
    let (near, far) = (bus.attach(), bus.attach());
    let mut near_sub = near.subscribe("s", 10).await.unwrap();
    let mut far_sub = far.subscribe("s", 10).await.unwrap();
    far.set_link(Link::Down);
    let message = Message { subject: "s".to_owned(), ..Message::default() };
    bus.publish(message.clone()).await.unwrap();
    assert_eq!(near_sub.next().await, Some(Received::Message(message.clone())));
    far.set_link(Link::Up);
    bus.publish(message.clone()).await.unwrap();
    assert_eq!(far_sub.next().await, Some(Received::Gap));
    assert_eq!(far_sub.next().await, Some(Received::Message(message)));
    bus.close();
    assert_eq!(far_sub.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_short_outages_only() {
    let clock = Arc::new(TokioClock::system());
    let registry = InMemoryRegistry::new(clock.clone());
    let owner = registry.attach();
    let ttl = Duration::from_secs(10);
    let entry = Entry { key: "/k".to_owned(), value: "v".into() };
    let lease = owner.register(entry.clone(), ttl).await.unwrap();
    let mut watch = registry.watch("/").await.unwrap();
    assert_eq!(watch.next().await, Some(Event::Reset(vec![entry])));
    owner.set_reachable(false);
    clock.sleep(ttl / 2).await;
    owner.set_reachable(true);
    clock.sleep(ttl * 3).await;
    assert_eq!(registry.list("/").await.unwrap().len(), 1);
    owner.set_reachable(false);
    let cut = clock.now();
    lease.lost().await;
    let lasted = clock.now() - cut;
    assert!((ttl..ttl * 2).contains(&(lasted + ttl / 8)), "{lasted:?}");
    assert_eq!(watch.next().await, Some(Event::Deleted { key: "/k".to_owned() }));
}
