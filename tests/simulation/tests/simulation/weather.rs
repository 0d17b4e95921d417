//! One node's way to the bus, and what happens on it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::bus::{Bus, Error, Link, Message, Received, Subscription};
use ports::memory_bus::InMemoryBus;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::chronicle::Chronicle;
use crate::dice::Dice;

/// What goes wrong, each message on its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) drop_permille: u64,
    pub(crate) duplicate_permille: u64,
    /// Messages that later ones overtake.
    pub(crate) late_permille: u64,
    pub(crate) late_max_ms: u64,
}

/// What was sent, per node: count and a sum of hashes over when, where and how much. Equal for two runs that went alike;
/// in which order a set's keys are listed, and messages of one instant are sent, is not decided by the seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<BTreeMap<String, (u64, u64)>>>);

impl Trace {
    fn note(&self, node: &str, at: Duration, message: &Message) {
        let mut nodes = self.0.lock();
        let (count, sum) = nodes.entry(node.to_owned()).or_default();
        *count += 1;
        let subject = if message.subject.starts_with("_INBOX.") { "_INBOX" } else { &message.subject };
        let length = message.payload.len().to_le_bytes();
        let parts = [&at.as_nanos().to_le_bytes()[..], subject.as_bytes(), &length];
        *sum = sum.wrapping_add(parts.iter().fold(0, |hash, part| xxh3_64_with_seed(part, hash)));
    }

    pub(crate) fn nodes(&self) -> BTreeMap<String, (u64, u64)> {
        self.0.lock().clone()
    }
}

/// A node's weather; its processes come and go below it.
#[derive(Debug)]
pub(crate) struct Sky {
    node: String,
    seed: u64,
    began: Instant,
    trace: Trace,
    chronicle: Chronicle,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    /// Nothing comes through, and nobody notices.
    dark: bool,
    /// The link is seen to be down.
    cut: bool,
    dice: Dice,
    subscriptions: u64,
    present: Option<InMemoryBus>,
}

impl Sky {
    pub(crate) fn new(node: &str, seed: u64, trace: &Trace, chronicle: &Chronicle) -> Arc<Self> {
        let state = State {
            weather: Weather::default(),
            dark: false,
            cut: false,
            dice: Dice::of(seed, node),
            subscriptions: 0,
            present: None,
        };
        let (node, trace, chronicle) = (node.to_owned(), trace.clone(), chronicle.clone());
        Arc::new(Self { node, seed, began: Instant::now(), trace, chronicle, state: Mutex::new(state) })
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.state.lock().weather = weather;
    }

    pub(crate) fn set_dark(&self, dark: bool) {
        self.state.lock().dark = dark;
    }

    pub(crate) fn set_cut(&self, cut: bool) {
        let mut state = self.state.lock();
        state.cut = cut;
        if let Some(present) = &state.present {
            present.set_link(if cut { Link::Down } else { Link::Up });
        }
    }

    /// Connects a process of the node.
    pub(crate) fn connect(self: &Arc<Self>, bus: &InMemoryBus) -> Arc<dyn Bus> {
        let client = bus.attach();
        let mut state = self.state.lock();
        if state.cut {
            client.set_link(Link::Down);
        }
        state.present = Some(client.clone());
        Arc::new(WeatherBus { client, sky: Arc::clone(self) })
    }

    /// Tells whether a message of the node's own gets lost.
    fn swallows(&self) -> bool {
        let mut state = self.state.lock();
        let drop_permille = state.weather.drop_permille;
        state.dark || state.dice.chance(drop_permille / 2)
    }
}

#[derive(Debug)]
struct WeatherBus {
    client: InMemoryBus,
    sky: Arc<Sky>,
}

#[async_trait]
impl Bus for WeatherBus {
    async fn publish(&self, message: Message) -> Result<(), Error> {
        self.sky.trace.note(&self.sky.node, self.sky.began.elapsed(), &message);
        self.sky.chronicle.note(&message);
        if self.sky.swallows() {
            return Ok(());
        }
        self.client.publish(message).await
    }

    async fn request(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.sky.trace.note(&self.sky.node, self.sky.began.elapsed(), &message);
        let lost = Error::Timeout { subject: message.subject.clone(), deadline };
        let (question_lost, answer_lost) = (self.sky.swallows(), self.sky.swallows());
        if question_lost {
            sleep(deadline).await;
            return Err(lost);
        }
        let answer = self.client.request(message, deadline).await?;
        if answer_lost {
            sleep(deadline).await;
            return Err(lost);
        }
        Ok(answer)
    }

    async fn subscribe(&self, pattern: &str, queue_max: usize) -> Result<Box<dyn Subscription>, Error> {
        let inner = self.client.subscribe(pattern, queue_max).await?;
        let mut state = self.sky.state.lock();
        state.subscriptions += 1;
        let part = format!("{}/{}/{pattern}", self.sky.node, state.subscriptions);
        let dice = Dice::of(self.sky.seed, &part);
        drop(state);
        Ok(Box::new(Rained { inner, sky: Arc::clone(&self.sky), dice, late: BinaryHeap::new(), count: 0 }))
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.client.link()
    }

    fn payload_bytes_max(&self) -> usize {
        self.client.payload_bytes_max()
    }
}

/// A subscription below a sky.
#[derive(Debug)]
struct Rained {
    inner: Box<dyn Subscription>,
    sky: Arc<Sky>,
    dice: Dice,
    late: BinaryHeap<Reverse<Late>>,
    count: u64,
}

/// A message that arrives later; ordered by time, then as sent.
#[derive(Debug)]
struct Late {
    at: Instant,
    number: u64,
    message: Message,
}

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Late {}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Late {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Rained {
    /// Decides what becomes of a message: it arrives now, or it is dropped or put off.
    fn fall(&mut self, message: Message) -> Option<Message> {
        let (weather, dark) = {
            let state = self.sky.state.lock();
            (state.weather, state.dark)
        };
        if dark || self.dice.chance(weather.drop_permille) {
            return None;
        }
        if self.dice.chance(weather.duplicate_permille) {
            self.put_off(message.clone(), weather);
        }
        if self.dice.chance(weather.late_permille) {
            self.put_off(message, weather);
            return None;
        }
        Some(message)
    }

    fn put_off(&mut self, message: Message, weather: Weather) {
        self.count += 1;
        let at = Instant::now() + self.dice.ms(weather.late_max_ms.max(1));
        self.late.push(Reverse(Late { at, number: self.count, message }));
    }

    fn due(&mut self) -> Option<Message> {
        let first = self.late.peek_mut()?;
        (first.0.at <= Instant::now()).then(|| PeekMut::pop(first).0.message)
    }
}

#[async_trait]
impl Subscription for Rained {
    async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some(message) = self.due() {
                return Some(Received::Message(message));
            }
            let later = self.late.peek().map(|late| late.0.at);
            let wait = async {
                match later {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                received = self.inner.next() => match received? {
                    Received::Gap => return Some(Received::Gap),
                    Received::Message(message) => if let Some(message) = self.fall(message) {
                        return Some(Received::Message(message));
                    },
                },
                () = wait => {}
            }
        }
    }
}
