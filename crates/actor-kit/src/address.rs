//! Where an actor is reached, whichever of its lives it is in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, Message, MessagingErr};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::mail::{Mail, Reply};

/// Why an actor did not take or answer a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer in time; the message may still be handled.
    #[error("actor {actor} did not answer within {deadline:?}")]
    Timeout {
        /// The actor's name.
        actor: String,
        /// How long the caller waited.
        deadline: Duration,
    },
    /// The mailbox is full.
    #[error("mailbox of actor {actor} is full")]
    Full {
        /// The actor's name.
        actor: String,
    },
    /// The actor ended before it answered, and is being started again.
    #[error("actor {actor} ended before it answered")]
    Died {
        /// The actor's name.
        actor: String,
    },
    /// The actor was retired and does not come back.
    #[error("actor {actor} is stopped")]
    Stopped {
        /// The actor's name.
        actor: String,
    },
}

/// A message that was not delivered.
#[derive(Debug)]
pub struct Undelivered<M> {
    /// The message.
    pub body: M,
    /// Why.
    pub why: Error,
}

/// An actor's bounded mailbox; outlives the actor's restarts and is cheap to clone.
///
/// Private to an actor's file: the public handle wraps it.
pub struct Address<M: Message> {
    shared: Arc<Shared<M>>,
}

struct Shared<M: Message> {
    name: String,
    present: watch::Sender<Option<ActorRef<Mail<M>>>>,
    places: Arc<Semaphore>,
}

impl<M: Message> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Message> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shared.name).finish()
    }
}

impl<M: Message> Address<M> {
    /// Makes an address at which nobody lives yet.
    pub(crate) fn vacant(name: &str, mailbox_max: usize) -> Self {
        let shared = Shared {
            name: name.to_owned(),
            present: watch::Sender::new(None),
            places: Arc::new(Semaphore::new(mailbox_max.clamp(1, Semaphore::MAX_PERMITS))),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets an actor move in.
    pub(crate) fn occupy(&self, actor: ActorRef<Mail<M>>) {
        self.shared.present.send_replace(Some(actor));
    }

    /// Notes that the actor is gone.
    pub(crate) fn vacate(&self) {
        self.shared.present.send_replace(None);
    }

    /// Notes that nobody will live here again.
    pub(crate) fn close(&self) {
        self.shared.places.close();
        self.vacate();
    }

    /// Returns the actor's name, `<actor>/<key>`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Sends a message and waits for its answer: for a place in the mailbox, for a restart, and for the actor.
    ///
    /// # Errors
    /// `Timeout` after `deadline`; `Died` where the actor ended with the message in hand (it may have been handled);
    /// `Stopped` after retirement. Never `Full`.
    pub async fn call<R>(&self, deadline: Duration, make: impl FnOnce(Reply<R>) -> M) -> Result<R, Error> {
        let (reply, answer) = Reply::channel();
        let body = make(reply);
        let work = async {
            self.deliver(body).await?;
            answer.await.map_err(|_| Error::Died { actor: self.shared.name.clone() })
        };
        self.within(deadline, work).await
    }

    /// Sends a message and waits until the mailbox has it.
    ///
    /// # Errors
    /// `Timeout` after `deadline`, `Stopped` after retirement; in both cases the message is gone.
    pub async fn tell(&self, deadline: Duration, body: M) -> Result<(), Error> {
        self.within(deadline, self.deliver(body)).await
    }

    /// Sends a message if the mailbox has a place now.
    ///
    /// # Errors
    /// Gives the message back with `Full`, `Died` (between two lives) or `Stopped`.
    pub fn offer(&self, body: M) -> Result<(), Undelivered<M>> {
        let actor = self.shared.name.clone();
        let place = match Arc::clone(&self.shared.places).try_acquire_owned() {
            Ok(place) => place,
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                return Err(Undelivered { body, why: Error::Full { actor } });
            }
            Err(tokio::sync::TryAcquireError::Closed) => {
                return Err(Undelivered { body, why: Error::Stopped { actor } });
            }
        };
        let present = self.shared.present.borrow().clone();
        let Some(present) = present else {
            return Err(Undelivered { body, why: Error::Died { actor } });
        };
        match send(&present, Mail::new(body, Some(place))) {
            Ok(()) => Ok(()),
            Err(mail) => Err(Undelivered { body: mail.open(), why: Error::Died { actor } }),
        }
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(deadline, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Timeout { actor: self.shared.name.clone(), deadline }),
        }
    }

    async fn deliver(&self, body: M) -> Result<(), Error> {
        let stopped = || Error::Stopped { actor: self.shared.name.clone() };
        let place = Arc::clone(&self.shared.places).acquire_owned().await.map_err(|_| stopped())?;
        let mut mail = Mail::new(body, Some(place));
        let mut present = self.shared.present.subscribe();
        loop {
            let actor = present.borrow_and_update().clone();
            if let Some(actor) = actor {
                match send(&actor, mail) {
                    Ok(()) => return Ok(()),
                    Err(back) => mail = back,
                }
            }
            if self.shared.places.is_closed() {
                return Err(stopped());
            }
            present.changed().await.map_err(|_| stopped())?;
        }
    }
}

/// Puts mail into a mailbox, or gives it back where the actor has ended.
fn send<M: Message>(actor: &ActorRef<Mail<M>>, mail: Mail<M>) -> Result<(), Mail<M>> {
    match actor.send_message(mail) {
        Ok(()) | Err(MessagingErr::ChannelClosed | MessagingErr::InvalidActorType) => Ok(()),
        Err(MessagingErr::SendErr(mail)) => Err(mail),
    }
}
