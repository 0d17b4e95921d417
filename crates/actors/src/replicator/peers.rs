//! Another replica that gives whole sets to this one while it joins.

use std::sync::Arc;
use std::time::Duration;

use identity::ModelName;
use ports::Bus;
use ports::bus::Message;
use tokio::sync::Mutex;
use wire::peer::{Offered, Question};

/// How long replicas may take to say that they have room. Where there is none, joining takes this much longer: its own
/// desk hears the question as well, so that the bus can't tell that nobody else does.
const OFFER_DEADLINE: Duration = Duration::from_millis(50);

/// Finds one replica, once, for all holders.
#[derive(Debug)]
pub(super) struct Peers {
    bus: Arc<dyn Bus>,
    namespace: String,
    model: ModelName,
    me: u64,
    found: Mutex<Found>,
}

#[derive(Debug)]
enum Found {
    NotAsked,
    At(String),
    Nobody,
}

impl Peers {
    pub(super) fn new(bus: Arc<dyn Bus>, namespace: &str, model: &ModelName, me: u64) -> Self {
        let (namespace, model) = (namespace.to_owned(), model.clone());
        Self { bus, namespace, model, me, found: Mutex::new(Found::NotAsked) }
    }

    /// Returns where a replica answers that offered what it has; asks for one the first time, and the others wait.
    pub(super) async fn find(&self) -> Option<String> {
        let mut found = self.found.lock().await;
        if matches!(*found, Found::NotAsked) {
            *found = self.look().await.map_or(Found::Nobody, Found::At);
        }
        match &*found {
            Found::At(subject) => Some(subject.clone()),
            Found::NotAsked | Found::Nobody => None,
        }
    }

    /// Asks it no more: it did not answer.
    pub(super) async fn give_up(&self) {
        *self.found.lock().await = Found::Nobody;
    }

    async fn look(&self) -> Option<String> {
        let payload = Question::Offer { asker: self.me }.encode().ok()?;
        let subject = wire::subject::peers(&self.namespace, &self.model);
        let message = Message { subject, payload, ..Message::default() };
        let answer = self.bus.request(message, OFFER_DEADLINE).await.ok()?;
        let Offered { peer } = Offered::decode(&answer.payload).ok()?;
        Some(wire::subject::peer(&self.namespace, &self.model, peer))
    }
}
