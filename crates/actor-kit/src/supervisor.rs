//! Parent: the node's guardian task · Asks: nobody
//! Bound: 64 waiting messages, one child timer per supervised actor
//! When it dies: its actors die with it; the guardian starts another, which starts them again from the roster.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::time::{Instant, timeout};

use crate::actor::Me;
use crate::children::Children;
use crate::mail::{Mail, Reply};
use crate::node::{Birth, Error, Roster, START_DEADLINE};
use crate::restart::{Restarts, Verdict};

pub(crate) const NAME: &str = "supervisor";
pub(crate) const MAILBOX_MAX: usize = 64;
const ACTORS_MAX: usize = 65_536;

#[derive(Debug)]
pub(crate) enum Msg {
    Start(Arc<Birth>, Reply<Result<(), Error>>),
    Again(Arc<Birth>),
    Retire(String, Reply<()>),
}

impl std::fmt::Debug for Birth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Birth").field(&self.name).finish()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Supervisor;

pub(crate) struct State {
    roster: Arc<Roster>,
    alive: HashMap<ActorId, Arc<Birth>>,
    records: HashMap<String, Restarts>,
    timers: Children<Msg>,
    me: ActorCell,
    began: Instant,
}

impl Actor for Supervisor {
    type Msg = Mail<Msg>;
    type State = State;
    type Arguments = Arc<Roster>;

    async fn pre_start(
        &self,
        me: ActorRef<Mail<Msg>>,
        roster: Arc<Roster>,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State {
            roster,
            alive: HashMap::new(),
            records: HashMap::new(),
            me: me.get_cell(),
            timers: Children::new(Me::new(me), ACTORS_MAX),
            began: Instant::now(),
        })
    }

    async fn post_start(
        &self,
        _me: ActorRef<Mail<Msg>>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let births: Vec<_> = state.roster.births.lock().values().cloned().collect();
        for birth in births {
            (birth.vacate)();
            state.again(birth).await;
        }
        Ok(())
    }

    async fn handle(
        &self,
        _me: ActorRef<Mail<Msg>>,
        mail: Mail<Msg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match mail.open() {
            Msg::Start(birth, reply) => reply.send(state.start(birth).await),
            Msg::Again(birth) => state.again(birth).await,
            Msg::Retire(name, reply) => state.retire(&name, reply),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<Mail<Msg>>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                state.ended(&cell, &reason.unwrap_or_default());
            }
            SupervisionEvent::ActorFailed(cell, error) => state.ended(&cell, &error.to_string()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl State {
    /// Places an actor for the first time.
    async fn start(&mut self, birth: Arc<Birth>) -> Result<(), Error> {
        if self.roster.births.lock().contains_key(&birth.name) {
            return Err(Error::Taken { actor: birth.name.clone() });
        }
        self.spawn(&birth).await.map_err(|reason| Error::Start { actor: birth.name.clone(), reason })?;
        self.roster.births.lock().insert(birth.name.clone(), birth);
        Ok(())
    }

    /// Brings a placed actor back, unless it has been retired meanwhile.
    async fn again(&mut self, birth: Arc<Birth>) {
        let placed =
            self.roster.births.lock().get(&birth.name).is_some_and(|placed| Arc::ptr_eq(placed, &birth));
        if placed && let Err(reason) = self.spawn(&birth).await {
            self.schedule(&birth, &reason);
        }
    }

    async fn spawn(&mut self, birth: &Arc<Birth>) -> Result<(), String> {
        let name = self.roster.registered(&birth.name);
        let cell = match timeout(START_DEADLINE, (birth.spawn)(self.me.clone(), name)).await {
            Ok(Ok(cell)) => cell,
            Ok(Err(SpawnErr::StartupFailed(error))) => return Err(error.to_string()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no start within {START_DEADLINE:?}")),
        };
        self.alive.insert(cell.get_id(), Arc::clone(birth));
        Ok(())
    }

    fn retire(&mut self, name: &str, reply: Reply<()>) {
        self.records.remove(name);
        if let Some(cell) = ractor::registry::where_is(self.roster.registered(name)) {
            cell.stop(None);
        }
        reply.send(());
    }

    fn ended(&mut self, cell: &ActorCell, reason: &str) {
        let Some(birth) = self.alive.remove(&cell.get_id()) else { return };
        let placed =
            self.roster.births.lock().get(&birth.name).is_some_and(|placed| Arc::ptr_eq(placed, &birth));
        if placed {
            (birth.vacate)();
            self.schedule(&birth, reason);
        }
    }

    fn schedule(&mut self, birth: &Arc<Birth>, reason: &str) {
        let now = self.began.elapsed();
        let record = self.records.entry(birth.name.clone()).or_insert_with(|| Restarts::new(birth.restart));
        let (actor, node) = (birth.name.as_str(), self.roster.node.as_str());
        let after = match record.ended(now) {
            Verdict::Restart { after } => {
                tracing::warn!(node, actor, reason, ?after, "actor ended, restarting");
                after
            }
            Verdict::Exhausted { after } => {
                tracing::error!(node, actor, reason, ?after, "actor keeps ending, restarting late");
                after
            }
        };
        if let Err(full) = self.timers.after(after, Msg::Again(Arc::clone(birth))) {
            tracing::error!(node, actor, %full, "restart could not be scheduled");
        }
    }
}
