//! Takes operators' commands from the bus: to take nothing new, or to take requests again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::WorkerId;
use ports::bus::{Message, Received};
use ports::{Bus, Clock, StateStore};
use tokio::sync::watch;
use tracing::Instrument as _;
use wire::command::{Answer, Command};

/// Commands that wait at most; further ones are sent again.
const COMMANDS_MAX: usize = 16;
/// Pause before subscribing again.
const PAUSE: Duration = Duration::from_millis(500);

/// What operators want of a worker; survives the agent where its state does.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    worker: WorkerId,
    store: Arc<dyn StateStore>,
    draining: Arc<watch::Sender<bool>>,
}

impl Wish {
    pub(crate) fn new(worker: WorkerId, store: Arc<dyn StateStore>) -> Self {
        Self { worker, store, draining: Arc::new(watch::Sender::new(false)) }
    }

    /// Tells whether the worker is to take nothing new.
    pub(crate) fn drains(&self) -> bool {
        *self.draining.borrow()
    }

    /// Remembers what was wanted before the agent was started again.
    pub(crate) async fn recall(&self) {
        match self.store.load(&self.name()).await {
            Ok(kept) => drop(self.draining.send_replace(kept.as_deref() == Some(DRAINING))),
            Err(error) => {
                tracing::warn!(worker = %self.worker, %error, "whether to drain is not known any more");
            }
        }
    }

    /// Takes note of a command, for later lives as well.
    async fn obey(&self, command: Command) -> Answer {
        let draining = command == Command::Drain;
        let kept = Bytes::from_static(if draining { DRAINING } else { b"" });
        if let Err(error) = self.store.save(&self.name(), kept).await {
            tracing::warn!(worker = %self.worker, %error, "command cannot be kept");
            return Answer::NotKept;
        }
        if self.draining.send_replace(draining) != draining {
            tracing::info!(worker = %self.worker, draining, "told by an operator");
        }
        Answer::Done { draining }
    }

    fn name(&self) -> String {
        format!("wish/{}", self.worker)
    }
}

const DRAINING: &[u8] = b"draining";

/// Where commands come in.
#[derive(Debug)]
pub(crate) struct CommandDesk {
    pub(crate) subject: String,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wish: Wish,
}

impl CommandDesk {
    /// Obeys one command after the other; never ends by itself.
    pub(crate) async fn serve(self) {
        loop {
            if let Ok(mut commands) = self.bus.subscribe(&self.subject, COMMANDS_MAX).await {
                while let Some(received) = commands.next().await {
                    let Received::Message(message) = received else { continue };
                    let span = tracing::debug_span!("command", worker = %self.wish.worker);
                    self.bus.join_trace(&span, &message);
                    self.obey(message).instrument(span).await;
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn obey(&self, message: Message) {
        let (Some(subject), Ok(command)) = (message.reply, Command::decode(&message.payload)) else { return };
        let answer = self.wish.obey(command).await;
        let Ok(payload) = answer.encode() else { return };
        if let Err(error) = self.bus.publish(Message { subject, payload, ..Message::default() }).await {
            tracing::debug!(%error, "command was not answered");
        }
    }
}

#[cfg(test)]
mod tests {
    use ports::InMemoryStateStore;

    use super::*;

    #[tokio::test]
    async fn a_wish_outlives_the_agent() {
        let store: Arc<dyn StateStore> = Arc::new(InMemoryStateStore::default());
        let wish = || Wish::new(WorkerId::new("w0"), Arc::clone(&store));
        for (command, draining) in [(Command::Drain, true), (Command::Drain, true), (Command::Resume, false)]
        {
            let present = wish();
            assert_eq!(present.obey(command).await, Answer::Done { draining });
            assert_eq!(present.drains(), draining);
            let next = wish();
            next.recall().await;
            assert_eq!(next.drains(), draining);
        }
        let other = Wish::new(WorkerId::new("w1"), store);
        other.recall().await;
        assert!(!other.drains());
    }
}
