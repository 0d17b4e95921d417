//! What an actor is, and how ractor runs one.

use std::fmt;
use std::marker::PhantomData;

use ractor::{ActorProcessingErr, ActorRef, Message, SupervisionEvent};
use tokio::sync::OwnedSemaphorePermit;

use crate::mail::Mail;

/// What ends an actor's life: it is logged, and the actor is started again.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// An actor's state, one value per life.
pub trait Actor: Sized + Send + 'static {
    /// What it takes from its mailbox.
    type Msg: Send + 'static;
    /// What every life begins with; published snapshots belong here.
    type Args: Clone + Send + Sync + 'static;

    /// Begins a life. It only builds state: the node's other restarts wait for it.
    ///
    /// # Errors
    /// The life does not begin: [`Node::supervise`](crate::Node::supervise) fails, a restart is tried again.
    fn begin(me: Me<Self::Msg>, args: Self::Args) -> Result<Self, Fault>;

    /// Handles one message, whose place in the mailbox is free by now; may be dropped at any `await`.
    ///
    /// # Errors
    /// The life ends.
    fn handle(&mut self, message: Self::Msg) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// An actor's own mailbox in its present life, for its [`Children`](crate::Children).
pub struct Me<M: Message>(ActorRef<Mail<M>>);

impl<M: Message> Me<M> {
    pub(crate) const fn new(actor: ActorRef<Mail<M>>) -> Self {
        Self(actor)
    }

    /// Sends a message, with its place where the sender counts places; answers whether the actor still lives.
    pub(crate) fn send(&self, message: M, place: Option<OwnedSemaphorePermit>) -> bool {
        self.0.send_message(Mail::new(message, place)).is_ok()
    }
}

impl<M: Message> Clone for Me<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Message> fmt::Debug for Me<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Me").field(&self.0.get_name()).finish()
    }
}

/// Runs an [`Actor`] on ractor.
pub(crate) struct Runner<A>(PhantomData<fn() -> A>);

impl<A> Runner<A> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<A: Actor> ractor::Actor for Runner<A> {
    type Msg = Mail<A::Msg>;
    type State = A;
    type Arguments = A::Args;

    async fn pre_start(&self, me: ActorRef<Mail<A::Msg>>, args: A::Args) -> Result<A, ActorProcessingErr> {
        A::begin(Me(me), args)
    }

    async fn handle(
        &self,
        _me: ActorRef<Mail<A::Msg>>,
        mail: Mail<A::Msg>,
        state: &mut A,
    ) -> Result<(), ActorProcessingErr> {
        state.handle(mail.open()).await
    }

    /// Written out because ractor's default stops an actor when a child of it ends.
    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<Mail<A::Msg>>,
        _event: SupervisionEvent,
        _state: &mut A,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}
