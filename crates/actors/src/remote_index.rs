//! `RemoteIndex`: the index where it is not in this process: indexers are asked over the bus.
//!
//! *Parent*: whoever makes it, and drives `follow`; it has no mailbox. *Asks*: indexers, once per request, the first
//! answer wins; and for how holders stand, each second. *Bound*: 5 ms per request, 256 KiB per question.
//! *When it dies*: it cannot; without an answer requests are routed by load.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use identity::{Holder, Incarnation, ModelName};
use placement::RoutingRequest;
use ports::bus::{self, Message};
use ports::{Bus, Clock};
use tokio::sync::watch;
use tracing::Instrument as _;
use wire::lookup::{Chain, KEYS_MAX, Request, Response, Standing};

use crate::directory::{DirectoryHandle, Pulse, Seat};
use crate::indexer::{HolderView, agreement, pulses};
use crate::scheduler::{IndexSource, Sight};

/// How long a request waits for an indexer.
pub const LOOK_UP_DEADLINE: Duration = Duration::from_millis(5);
/// How often holders' standings are asked for.
const ROSTER_PERIOD: Duration = Duration::from_secs(1);
/// How often, while none has come.
const ROSTER_RETRY: Duration = Duration::from_millis(100);
/// How long the answer may take.
const ROSTER_DEADLINE: Duration = Duration::from_millis(500);
/// After this long without an answer, standings count no more.
const ROSTER_LIFE: Duration = Duration::from_secs(5);

/// Indexers as one index; cheap to clone.
#[derive(Clone)]
pub struct RemoteIndex(Arc<Inner>);

struct Inner {
    namespace: String,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    rosters: ArcSwap<HashMap<ModelName, Arc<Roster>>>,
}

/// How the holders of a model stood when an indexer was last asked.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    holders: HashMap<Holder, HolderView>,
    heard_at: Duration,
}

/// What an indexer found of one prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    depths: HashMap<Holder, (Incarnation, u32)>,
    cut: bool,
}

/// Why no indexer said anything of a prompt: it is routed by load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// None is ready.
    #[error("no indexer is ready")]
    Unserved,
    /// None answered in time.
    #[error("no indexer answered within {LOOK_UP_DEADLINE:?}")]
    Late,
    /// The bus cannot be reached.
    #[error("the bus cannot be reached")]
    Unreachable,
    /// What came is no answer to this question.
    #[error("an indexer's answer cannot be read")]
    Malformed,
}

impl Unanswered {
    /// Returns the reason's name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unserved => "unserved",
            Self::Late => "late",
            Self::Unreachable => "unreachable",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Debug for RemoteIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteIndex").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

impl Found {
    /// Returns how many blocks a holder has, unless the answer speaks of an engine life before `floor`.
    #[must_use]
    pub fn blocks(&self, holder: &Holder, floor: Incarnation) -> u32 {
        let depth = self.depths.get(holder).filter(|(incarnation, _)| *incarnation >= floor);
        depth.map_or(0, |(_, blocks)| *blocks)
    }

    /// Tells whether only the beginning of the prompt was asked for: holders may have more than was found.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }
}

impl Roster {
    /// Finds a holder.
    #[must_use]
    pub fn holder(&self, holder: &Holder) -> Option<&HolderView> {
        self.holders.get(holder)
    }

    /// Lists the holders, in no order.
    pub fn holders(&self) -> impl Iterator<Item = (&Holder, &HolderView)> {
        self.holders.iter()
    }

    /// Returns the indexer's agreement with the agents; 1 without holders.
    #[must_use]
    pub fn agreement(&self) -> f64 {
        agreement(self.holders.values())
    }
}

impl RemoteIndex {
    /// Makes an index of which nothing is known yet.
    #[must_use]
    pub fn new(namespace: &str, bus: Arc<dyn Bus>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { namespace: namespace.to_owned(), bus, clock, rosters: ArcSwap::default() }))
    }

    /// Asks who has how much of a prompt: one message, the first answer wins.
    ///
    /// # Errors
    /// Nobody answered: route the request by load.
    pub async fn look_up(&self, model: &ModelName, routing: &RoutingRequest) -> Result<Found, Unanswered> {
        let mut room = KEYS_MAX;
        let mut cut = false;
        let chains = routing.chains.iter().map(|chain| {
            let keys = chain.keys.get(..room).unwrap_or(&chain.keys).to_vec();
            cut |= keys.len() < chain.keys.len();
            room -= keys.len();
            Chain { block_size: chain.block_size, keys }
        });
        let chains: Vec<Chain> = chains.filter(|chain| !chain.keys.is_empty()).collect();
        if chains.is_empty() {
            return Ok(Found { cut, ..Found::default() });
        }
        let blocks = i64::try_from(KEYS_MAX - room).unwrap_or(i64::MAX);
        let span = tracing::debug_span!("lookup", %model, blocks);
        let asked = Request::Depths { chains };
        match self.ask(model, &asked, LOOK_UP_DEADLINE).instrument(span).await? {
            Response::Depths { found } => {
                let depths = found.into_iter().map(|it| (it.holder, (it.incarnation, it.blocks)));
                Ok(Found { depths: depths.collect(), cut })
            }
            Response::Roster { .. } => Err(Unanswered::Malformed),
        }
    }

    /// Keeps itself told of how holders stand, for every model that some worker serves; never ends by itself.
    pub async fn follow(self, directory: DirectoryHandle) {
        loop {
            let fleet = directory.fleet();
            let mut complete = true;
            for model in fleet.models() {
                complete &= self.refresh(model).await;
            }
            self.forget(|model| fleet.models().any(|it| it == model));
            let pause = if complete && fleet.version() > 0 { ROSTER_PERIOD } else { ROSTER_RETRY };
            self.0.clock.sleep(pause).await;
        }
    }

    /// Returns how a model's holders stand; none where no indexer has said so lately.
    #[must_use]
    pub fn roster(&self, model: &ModelName) -> Option<Arc<Roster>> {
        self.0.rosters.load().get(model).cloned()
    }

    async fn refresh(&self, model: &ModelName) -> bool {
        let answer = self.ask(model, &Request::Roster, ROSTER_DEADLINE).await;
        let now = self.0.clock.now();
        match answer {
            Ok(Response::Roster { holders }) => {
                let holders = holders.into_iter().map(|standing| view(standing, now)).collect();
                let roster = Arc::new(Roster { holders, heard_at: now });
                self.0.rosters.rcu(|rosters| {
                    let mut rosters = HashMap::clone(rosters);
                    rosters.insert(model.clone(), Arc::clone(&roster));
                    rosters
                });
                true
            }
            Ok(Response::Depths { .. }) | Err(_) => {
                self.forget(|it| it != model || self.is_fresh(it, now));
                false
            }
        }
    }

    fn is_fresh(&self, model: &ModelName, now: Duration) -> bool {
        self.roster(model).is_some_and(|roster| now.saturating_sub(roster.heard_at) < ROSTER_LIFE)
    }

    /// Keeps the rosters of some models only.
    fn forget(&self, keep: impl Fn(&ModelName) -> bool) {
        if self.0.rosters.load().keys().all(&keep) {
            return;
        }
        self.0.rosters.rcu(|rosters| {
            let mut rosters = HashMap::clone(rosters);
            rosters.retain(|model, _| keep(model));
            rosters
        });
    }

    async fn ask(
        &self,
        model: &ModelName,
        request: &Request,
        deadline: Duration,
    ) -> Result<Response, Unanswered> {
        let payload = request.encode().map_err(|_| Unanswered::Malformed)?;
        let subject = wire::subject::lookup(&self.0.namespace, model);
        let answer = self.0.bus.request(Message { subject, payload, ..Message::default() }, deadline).await;
        let answer = answer.map_err(|error| match error {
            bus::Error::NoResponder { .. } => Unanswered::Unserved,
            bus::Error::Timeout { .. } => Unanswered::Late,
            bus::Error::Disconnected | bus::Error::TooLarge { .. } | bus::Error::Subject { .. } | _ => {
                Unanswered::Unreachable
            }
        })?;
        Response::decode(&answer.payload).map_err(|_| Unanswered::Malformed)
    }
}

/// Translates what an indexer says of a holder to this process's clock.
fn view(standing: Standing, now: Duration) -> (Holder, HolderView) {
    let beat_at = standing.beat_age_ms.map(|age| now.saturating_sub(Duration::from_millis(age)));
    let view = HolderView {
        id: None,
        state: standing.phase,
        incarnation: standing.incarnation,
        seq: standing.seq,
        beat_seq: standing.beat_seq,
        removed: standing.removed,
        blocks: standing.blocks,
        digest: standing.digest,
        agrees: standing.agrees,
        refuted: 0,
        coverage: standing.coverage,
        running: standing.running,
        waiting: standing.waiting,
        kv_usage: standing.kv_usage,
        engine_healthy: standing.engine_healthy,
        beat_at,
    };
    (standing.holder, view)
}

impl IndexSource for RemoteIndex {
    /// Tells holders' load; what they have of a prompt is in the request, which brings the answer of `look_up`.
    fn sights(&self, seats: &[Seat], _routing: &RoutingRequest) -> Vec<Sight> {
        let roster = seats.first().and_then(|seat| self.roster(&seat.worker.card.model));
        let sight = |seat: &Seat| {
            let known = roster.as_ref().and_then(|roster| roster.holder(&seat.holder));
            known.map_or_else(Sight::default, Sight::of_load)
        };
        seats.iter().map(sight).collect()
    }

    fn incarnation(&self, holder: &Holder) -> Option<Incarnation> {
        self.0.rosters.load().values().find_map(|roster| roster.holder(holder)?.incarnation)
    }

    fn pulses(&self) -> Vec<Pulse> {
        self.0.rosters.load().values().flat_map(|roster| pulses(roster.holders())).collect()
    }

    fn changed(&self, _model: &ModelName) -> Option<watch::Receiver<u64>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use identity::{BlockKey, Rank, WorkerId};
    use placement::KeyChain;
    use ports::bus::Received;
    use ports::{InMemoryBus, TokioClock};
    use wire::lookup::Depth;

    use super::*;

    const LIFE: Incarnation = Incarnation { started_ms: 5, nonce: 1 };

    fn remote(bus: &InMemoryBus) -> RemoteIndex {
        RemoteIndex::new("n", Arc::new(bus.attach()), Arc::new(TokioClock::system()))
    }

    fn prompt(keys: usize) -> RoutingRequest {
        let keys = vec![BlockKey::new(1); keys];
        RoutingRequest { chains: vec![KeyChain { block_size: 16, keys }], ..RoutingRequest::default() }
    }

    fn holder() -> Holder {
        Holder { worker: WorkerId::new("w0"), rank: Rank(0) }
    }

    /// Answers one question with the number of keys asked for, after a while.
    async fn serve(bus: InMemoryBus, mut questions: Box<dyn bus::Subscription>, after: Duration) {
        let Some(Received::Message(asked)) = questions.next().await else { return };
        let Ok(Request::Depths { chains }) = Request::decode(&asked.payload) else { return };
        tokio::time::sleep(after).await;
        let blocks = u32::try_from(chains[0].keys.len()).unwrap();
        let answer = Response::Depths { found: vec![Depth { holder: holder(), incarnation: LIFE, blocks }] };
        let (subject, payload) = (asked.reply.unwrap(), answer.encode().unwrap());
        drop(bus.publish(Message { subject, payload, ..Message::default() }).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_answer_wins_and_late_ones_do_not_count() {
        let bus = InMemoryBus::new();
        let (index, model) = (remote(&bus), ModelName::new("m"));
        assert_eq!(index.look_up(&model, &prompt(3)).await, Err(Unanswered::Unserved));
        let subject = wire::subject::lookup("n", &model);
        let ask = async |delays: &[u64], keys: usize| {
            let mut servers = tokio::task::JoinSet::new();
            for delay in delays {
                let questions = bus.subscribe(&subject, 8).await.unwrap();
                servers.spawn(serve(bus.clone(), questions, Duration::from_millis(*delay)));
            }
            let began = tokio::time::Instant::now();
            (index.look_up(&model, &prompt(keys)).await, began.elapsed().as_millis())
        };
        let (found, took) = ask(&[30, 2], 3).await;
        assert_eq!((found.unwrap().blocks(&holder(), LIFE), took), (3, 2));
        let (found, took) = ask(&[30, 40], 3).await;
        assert_eq!((found, took), (Err(Unanswered::Late), 5));
        let (found, _) = ask(&[0], KEYS_MAX + 1).await;
        let found = found.unwrap();
        assert!(found.is_cut());
        assert_eq!(found.blocks(&holder(), LIFE), u32::try_from(KEYS_MAX).unwrap());
        let newer = Incarnation { started_ms: 6, nonce: 0 };
        assert_eq!(found.blocks(&holder(), newer), 0, "an engine that started since has nothing of it");
    }
}
