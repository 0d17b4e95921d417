//! The root of one node's supervision tree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ractor::{Actor as _, ActorCell, SpawnErr};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::actor::{Actor, Runner};
use crate::address::{self, Address};
use crate::restart::{Policy, Restarts, Verdict};
use crate::supervisor;

/// How long a supervised actor may take to start.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(5);

/// Why an actor could not be placed under supervision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its life did not begin.
    #[error("actor {actor} did not start: {reason}")]
    Start {
        /// The actor's name.
        actor: String,
        /// What `begin` said.
        reason: String,
    },
    /// The node already has an actor of that name.
    #[error("node already has an actor {actor}")]
    Taken {
        /// The actor's name.
        actor: String,
    },
    /// The node's supervisor did not take the request.
    #[error("node supervisor did not answer")]
    Supervisor(#[from] address::Error),
}

/// How an actor is placed in a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// `<actor>/<key>`; unique in the node.
    pub name: String,
    /// How many messages may wait.
    pub mailbox_max: usize,
    /// When it is started again.
    pub restart: Policy,
}

impl Spec {
    /// Places an actor with the default restart policy.
    #[must_use]
    pub fn new(name: impl Into<String>, mailbox_max: usize) -> Self {
        Self { name: name.into(), mailbox_max, restart: Policy::default() }
    }
}

/// A tree of supervised actors; cheap to clone. Dropping the last clone kills the tree.
///
/// Every actor of the tree that ends is started again with its arguments, the supervisor included.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    roster: Arc<Roster>,
    guardian: Mutex<JoinSet<()>>,
}

/// What outlives the supervisor: who is to be alive.
pub(crate) struct Roster {
    pub(crate) node: String,
    pub(crate) births: Mutex<BTreeMap<String, Arc<Birth>>>,
    pub(crate) supervisor: Address<supervisor::Msg>,
}

type Spawn = Box<dyn Fn(ActorCell, String) -> BoxFuture<'static, Result<ActorCell, SpawnErr>> + Send + Sync>;

/// How one actor is brought to life, again and again.
pub(crate) struct Birth {
    pub(crate) name: String,
    pub(crate) restart: Policy,
    pub(crate) spawn: Spawn,
    pub(crate) vacate: Box<dyn Fn() + Send + Sync>,
    pub(crate) close: Box<dyn Fn() + Send + Sync>,
}

impl Roster {
    /// Returns an actor's name in ractor's registry, which all nodes of a process share.
    pub(crate) fn registered(&self, actor: &str) -> String {
        format!("{}:{actor}", self.node)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.inner.roster.node).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.guardian.get_mut().abort_all();
        end_all(&self.roster);
    }
}

/// Makes every address answer `Stopped`, so that nothing is started again.
fn close_all(roster: &Roster) {
    for birth in std::mem::take(&mut *roster.births.lock()).values() {
        (birth.close)();
    }
    roster.supervisor.close();
}

/// Kills the supervisor and with it its actors.
fn end_all(roster: &Roster) {
    close_all(roster);
    if let Some(cell) = ractor::registry::where_is(roster.registered(supervisor::NAME)) {
        cell.kill();
    }
}

impl Node {
    /// Starts a node; `name` is unique in the process.
    #[must_use]
    pub fn start(name: &str) -> Self {
        let roster = Arc::new(Roster {
            node: name.to_owned(),
            births: Mutex::new(BTreeMap::new()),
            supervisor: Address::vacant(supervisor::NAME, supervisor::MAILBOX_MAX),
        });
        let mut guardian = JoinSet::new();
        guardian.spawn(guard(Arc::clone(&roster)));
        Self { inner: Arc::new(Inner { roster, guardian: Mutex::new(guardian) }) }
    }

    /// Starts an actor under supervision and returns its address once it runs.
    ///
    /// # Errors
    /// `Start` and `Taken`: nothing was placed.
    pub async fn supervise<A: Actor>(&self, spec: Spec, args: A::Args) -> Result<Address<A::Msg>, Error> {
        let address = Address::vacant(&spec.name, spec.mailbox_max);
        let (home, gone, closed) = (address.clone(), address.clone(), address.clone());
        let spawn: Spawn = Box::new(move |supervisor, name| {
            let (args, home) = (args.clone(), home.clone());
            async move {
                let (actor, _task) =
                    Runner::<A>::spawn_linked(Some(name), Runner::new(), args, supervisor).await?;
                let cell = actor.get_cell();
                home.occupy(actor);
                Ok(cell)
            }
            .boxed()
        });
        let birth = Birth {
            name: spec.name,
            restart: spec.restart,
            spawn,
            vacate: Box::new(move || gone.vacate()),
            close: Box::new(move || closed.close()),
        };
        let roster = &self.inner.roster;
        let deadline = START_DEADLINE * 2;
        roster.supervisor.call(deadline, |reply| supervisor::Msg::Start(Arc::new(birth), reply)).await??;
        Ok(address)
    }

    /// Stops an actor for good, after the message in hand; unknown names are ignored.
    ///
    /// # Errors
    /// `Supervisor`: the actor is marked as retired and may still run.
    pub async fn retire(&self, actor: &str) -> Result<(), Error> {
        let roster = &self.inner.roster;
        let birth = roster.births.lock().remove(actor);
        let Some(birth) = birth else { return Ok(()) };
        (birth.close)();
        let name = birth.name.clone();
        Ok(roster.supervisor.call(START_DEADLINE, |reply| supervisor::Msg::Retire(name, reply)).await?)
    }

    /// Lists the names of the actors that are to be alive, the supervisor not among them.
    #[must_use]
    pub fn actors(&self) -> Vec<String> {
        self.inner.roster.births.lock().keys().cloned().collect()
    }

    /// Kills an actor, or the supervisor by the name `supervisor`, as a bug would; for fault drills.
    ///
    /// Answers whether there was one.
    #[must_use]
    pub fn kill(&self, actor: &str) -> bool {
        let cell = ractor::registry::where_is(self.inner.roster.registered(actor));
        if let Some(cell) = &cell {
            cell.kill();
        }
        cell.is_some()
    }

    /// Ends the tree: stops every actor, waits up to `deadline` for it, and kills what remains.
    pub async fn stop(&self, deadline: Duration) {
        let roster = &self.inner.roster;
        let supervisor = ractor::registry::where_is(roster.registered(supervisor::NAME));
        self.inner.guardian.lock().abort_all();
        close_all(roster);
        if let Some(supervisor) = supervisor {
            supervisor.stop_children_and_wait(None, Some(deadline)).await;
        }
        end_all(roster);
    }
}

/// Keeps a supervisor alive until the node is dropped.
async fn guard(roster: Arc<Roster>) {
    let began = tokio::time::Instant::now();
    let mut restarts = Restarts::new(Policy::default());
    loop {
        let name = roster.registered(supervisor::NAME);
        let spawned =
            supervisor::Supervisor::spawn(Some(name), supervisor::Supervisor, Arc::clone(&roster)).await;
        match spawned {
            Ok((actor, task)) => {
                roster.supervisor.occupy(actor);
                drop(task.await);
            }
            Err(error) => tracing::warn!(node = roster.node, %error, "supervisor did not start"),
        }
        roster.supervisor.vacate();
        let (Verdict::Restart { after } | Verdict::Exhausted { after }) = restarts.ended(began.elapsed());
        tracing::warn!(node = roster.node, ?after, "supervisor ended, restarting");
        sleep(after).await;
    }
}
