//! Long work beside an actor's handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ractor::Message;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::actor::Me;
use crate::mail::Reply;

/// Why a child did not bring a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It took longer than it was given.
    #[error("child exceeded its deadline of {deadline:?}")]
    Deadline {
        /// What it was given.
        deadline: Duration,
    },
    /// It panicked.
    #[error("child panicked")]
    Panicked,
}

/// As many children run as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{children_max} children run already")]
pub struct Full {
    /// The bound.
    pub children_max: usize,
}

/// How a child hands its actor one message after the other, each once the one before is answered.
#[derive(Debug)]
pub struct Outlet<M: Message> {
    actor: Me<M>,
}

impl<M: Message> Outlet<M> {
    /// Sends a message and waits for the answer: for as long as the actor takes, which is how it slows its feed down.
    ///
    /// None where the actor ended, or dropped the reply.
    pub async fn give<R>(&mut self, make: impl FnOnce(Reply<R>) -> M) -> Option<R> {
        let (reply, answer) = Reply::channel();
        if self.actor.send(make(reply), None) { answer.await.ok() } else { None }
    }
}

/// An actor's running children; dropping it, as the actor's end does, ends them all.
///
/// Each child sends its actor exactly one message when it ends (unless it was aborted), so what a child occupies in
/// the mailbox is bounded by `children_max`.
#[derive(Debug)]
pub struct Children<M: Message> {
    me: Me<M>,
    tasks: JoinSet<()>,
    children_max: usize,
}

impl<M: Message> Children<M> {
    /// Allows an actor up to `children_max` children at a time.
    #[must_use]
    pub fn new(me: Me<M>, children_max: usize) -> Self {
        Self { me, tasks: JoinSet::new(), children_max }
    }

    /// Counts the children that run.
    pub fn len(&mut self) -> usize {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.len()
    }

    /// Tells whether no child runs.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Runs work with a deadline and sends the actor what comes of it.
    ///
    /// # Errors
    /// [`Full`]: the caller queues or sheds the work.
    pub fn run<T: Send + 'static>(
        &mut self,
        deadline: Duration,
        work: impl Future<Output = T> + Send + 'static,
        done: impl FnOnce(Result<T, Failed>) -> M + Send + 'static,
    ) -> Result<AbortHandle, Full> {
        let work = async move { timeout(deadline, work).await.map_err(|_| Failed::Deadline { deadline }) };
        self.report(work, done)
    }

    /// Runs a loop without end, such as the reading of a subscription, and tells the actor when it does end.
    ///
    /// # Errors
    /// [`Full`], as for `run`.
    pub fn pump<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        ended: impl FnOnce(Result<T, Failed>) -> M + Send + 'static,
    ) -> Result<AbortHandle, Full> {
        self.report(work.map(Ok), ended)
    }

    /// Runs a loop that feeds the actor through an [`Outlet`], and tells the actor when the loop ends.
    ///
    /// # Errors
    /// [`Full`], as for `run`.
    pub fn feed<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        work: impl FnOnce(Outlet<M>) -> F,
        ended: impl FnOnce(Result<T, Failed>) -> M + Send + 'static,
    ) -> Result<AbortHandle, Full> {
        let outlet = Outlet { actor: self.me.clone() };
        self.pump(work(outlet), ended)
    }

    /// Sends the actor a message every `period`; at most one waits in the mailbox.
    ///
    /// # Errors
    /// [`Full`], as for `run`.
    pub fn tick(
        &mut self,
        period: Duration,
        make: impl Fn() -> M + Send + 'static,
    ) -> Result<AbortHandle, Full> {
        let me = self.me.clone();
        self.start(async move {
            let place = Arc::new(Semaphore::new(1));
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Ok(permit) = Arc::clone(&place).acquire_owned().await else { return };
                if !me.send(make(), Some(permit)) {
                    return;
                }
            }
        })
    }

    /// Sends the actor a message after `delay`.
    ///
    /// # Errors
    /// [`Full`], as for `run`.
    pub fn after(&mut self, delay: Duration, message: M) -> Result<AbortHandle, Full> {
        let me = self.me.clone();
        self.start(async move {
            sleep(delay).await;
            me.send(message, None);
        })
    }

    fn report<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = Result<T, Failed>> + Send + 'static,
        done: impl FnOnce(Result<T, Failed>) -> M + Send + 'static,
    ) -> Result<AbortHandle, Full> {
        let me = self.me.clone();
        self.start(async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(Failed::Panicked));
            me.send(done(outcome), None);
        })
    }

    fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) -> Result<AbortHandle, Full> {
        if self.len() >= self.children_max {
            return Err(Full { children_max: self.children_max });
        }
        Ok(self.tasks.spawn(task))
    }
}
