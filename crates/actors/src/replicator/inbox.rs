//! The feed: deltas and beats from the bus, in batches.

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Outlet;
use futures::FutureExt as _;
use ports::bus::{Received, Subscription};
use ports::{Bus, Clock};
use wire::kv::{self, Update};

use super::Msg;

/// Messages handed over at once.
const BATCH_MAX: usize = 256;
/// Messages that wait in the subscription.
const QUEUE_MAX: usize = 16_384;
const RETRY: Duration = Duration::from_millis(500);

/// What came in since the last batch.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) updates: Vec<Update>,
    pub(super) gaps: u64,
    pub(super) malformed: u64,
}

/// Reads a pattern until the actor ends or the bus is closed.
pub(super) async fn read(bus: Arc<dyn Bus>, clock: Arc<dyn Clock>, pattern: String, mut outlet: Outlet<Msg>) {
    let mut subscription = subscribe(&*bus, &*clock, &pattern).await;
    while let Some(first) = subscription.next().await {
        let mut heard = Heard::default();
        heard.take(first);
        while heard.updates.len() < BATCH_MAX
            && let Some(Some(next)) = subscription.next().now_or_never()
        {
            heard.take(next);
        }
        if outlet.give(|reply| Msg::Heard(heard, reply)).await.is_none() {
            return;
        }
    }
}

async fn subscribe(bus: &dyn Bus, clock: &dyn Clock, pattern: &str) -> Box<dyn Subscription> {
    loop {
        match bus.subscribe(pattern, QUEUE_MAX).await {
            Ok(subscription) => return subscription,
            Err(error) => {
                tracing::debug!(%error, "subscription failed, trying again");
                clock.sleep(RETRY).await;
            }
        }
    }
}

impl Heard {
    fn take(&mut self, received: Received) {
        match received {
            Received::Gap => self.gaps += 1,
            Received::Message(message) => match kv::decode(&message.payload) {
                Ok(update) => self.updates.push(update),
                Err(_) => self.malformed += 1,
            },
        }
    }
}
