//! Notices that wait to be said: sent at once, and together with whatever comes while others are being sent.

use std::collections::VecDeque;
use std::sync::Arc;

use actor_kit::{Children, Failed};
use ports::Bus;
use ports::bus::{self, Message};
use wire::notice::{Notice, Notices};

use super::{LoadBoardArgs, Msg, PUBLISH_DEADLINE};

#[derive(Debug)]
pub(super) struct Outbox {
    frontend: String,
    subject: String,
    bus: Arc<dyn Bus>,
    waiting: VecDeque<Notice>,
    sending: bool,
}

/// Notices that wait; past it the oldest are not said.
const WAITING_MAX: usize = 4096;
/// Notices per message: 4 KiB of keys each keep it within the bus's limit.
const BATCH_MAX: usize = 128;

impl Outbox {
    pub(super) fn new(args: &LoadBoardArgs) -> Self {
        Self {
            frontend: args.frontend.clone(),
            subject: wire::subject::notice(&args.namespace),
            bus: Arc::clone(&args.bus),
            waiting: VecDeque::new(),
            sending: false,
        }
    }

    /// Takes notices, and sends them unless others are being sent.
    pub(super) fn put(
        &mut self,
        notices: Vec<Notice>,
        children: &mut Children<Msg>,
    ) -> Result<(), actor_kit::Full> {
        self.waiting.extend(notices);
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_front();
        }
        if self.sending { Ok(()) } else { self.send(children) }
    }

    /// Notes that a message is out, and sends the next.
    pub(super) fn sent(&mut self, children: &mut Children<Msg>) -> Result<(), actor_kit::Full> {
        self.sending = false;
        self.send(children)
    }

    fn send(&mut self, children: &mut Children<Msg>) -> Result<(), actor_kit::Full> {
        let notices: Vec<Notice> = self.waiting.drain(..self.waiting.len().min(BATCH_MAX)).collect();
        if notices.is_empty() {
            return Ok(());
        }
        let encoded = Notices { frontend: self.frontend.clone(), notices }.encode();
        let payload = match encoded {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!(%error, "notices cannot be written");
                return Ok(());
            }
        };
        let message = Message { subject: self.subject.clone(), payload, ..Message::default() };
        let bus = Arc::clone(&self.bus);
        let work = async move { bus.publish(message).await };
        let done = |_: Result<Result<(), bus::Error>, Failed>| Msg::Announced;
        children.run(PUBLISH_DEADLINE, work, done)?;
        self.sending = true;
        Ok(())
    }
}
