//! What travels through a mailbox.

use std::fmt;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A message together with the place it takes in the mailbox.
///
/// The place is freed when the actor opens the mail, or when the mailbox dies with the mail inside.
pub(crate) struct Mail<M> {
    body: M,
    place: Option<OwnedSemaphorePermit>,
}

impl<M> Mail<M> {
    /// Encloses a message; `place` is none where the sender bounds its own messages.
    pub(crate) const fn new(body: M, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, place }
    }

    /// Takes the message out and frees its place.
    pub(crate) fn open(self) -> M {
        drop(self.place);
        self.body
    }
}

impl<M> fmt::Debug for Mail<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mail").field("counted", &self.place.is_some()).finish_non_exhaustive()
    }
}

/// Where the answer to a call goes; dropping it fails the call at once.
pub struct Reply<R>(oneshot::Sender<R>);

impl<R> Reply<R> {
    /// Makes a reply and the end that waits for it.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<R>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Answers; a caller that no longer waits loses the answer.
    pub fn send(self, answer: R) {
        drop(self.0.send(answer));
    }

    /// Tells whether the caller has given up.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("abandoned", &self.is_abandoned()).finish()
    }
}
