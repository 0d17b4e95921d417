//! Answers frontends that keep no index, on the bus: for each model from when its replica is ready.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::{HolderView, IndexView};
use block_index::Matches;
use identity::{Holder, ModelName};
use membership::replica::Phase;
use ports::bus::{Message, Received};
use ports::{Bus, Clock};
use tokio::task::JoinSet;
use tracing::Instrument as _;
use wire::lookup::{Chain, Depth, Request, Response, Standing};

use crate::desks::{Desk, Desks};

/// Questions that wait at most: an answer takes some ten microseconds, and is of use for five milliseconds.
const QUESTIONS_MAX: usize = 64;
/// Pause before subscribing again.
const PAUSE: Duration = Duration::from_millis(250);
/// How often new models are looked for, and whether they are ready.
const LOOK: Duration = Duration::from_millis(50);

/// What lookups are answered from; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    pub(crate) namespace: String,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) desks: Desks,
    pub(crate) answered: Arc<AtomicU64>,
}

impl Lookups {
    /// Answers for every model that appears; never ends by itself.
    pub(crate) async fn follow(self) {
        let mut served: HashSet<ModelName> = HashSet::new();
        let mut tasks = JoinSet::new();
        loop {
            for (model, desk) in self.desks.all().iter() {
                if served.insert(model.clone()) {
                    tasks.spawn(self.clone().serve(model.clone(), desk.clone()));
                }
            }
            self.clock.sleep(LOOK).await;
        }
    }

    /// Keeps silent until the replica is ready: what it does not know yet would be taken for cached nowhere.
    async fn serve(self, model: ModelName, desk: Desk) {
        while !desk.index.is_ready() {
            self.clock.sleep(LOOK).await;
        }
        let subject = wire::subject::lookup(&self.namespace, &model);
        tracing::info!(%model, "answers lookups");
        loop {
            if let Ok(mut questions) = self.bus.subscribe(&subject, QUESTIONS_MAX).await {
                while let Some(received) = questions.next().await {
                    let Received::Message(message) = received else { continue };
                    let span = tracing::debug_span!("match", %model, holders = tracing::field::Empty);
                    self.bus.join_trace(&span, &message);
                    self.answer(&desk, message).instrument(span).await;
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn answer(&self, desk: &Desk, message: Message) {
        let (Some(subject), Ok(request)) = (message.reply, Request::decode(&message.payload)) else { return };
        let view = desk.index.view();
        let response = match request {
            Request::Depths { chains } => Response::Depths { found: depths(&view, &chains) },
            Request::Roster => Response::Roster { holders: standings(&view, self.clock.now()) },
        };
        if let Response::Depths { found } = &response {
            tracing::Span::current().record("holders", i64::try_from(found.len()).unwrap_or(i64::MAX));
        }
        let payload = match response.encode() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%error, "answer cannot be encoded");
                return;
            }
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.bus.publish(Message { subject, payload, ..Message::default() }).await {
            tracing::debug!(%error, "answer was not sent");
        }
    }
}

/// Looks a prompt up; a holder has keys of one block size only.
fn depths(view: &IndexView, chains: &[Chain]) -> Vec<Depth> {
    let mut found: HashMap<&Holder, Depth> = HashMap::new();
    for chain in chains {
        let mut matches = Matches::new();
        view.reader().matches(&chain.keys, &mut matches);
        for (id, blocks) in matches.iter().filter(|(_, blocks)| *blocks > 0) {
            let Some(holder) = view.holder_of(id) else { continue };
            let Some(incarnation) = view.holder(holder).filter(|it| counts(it)).and_then(|it| it.incarnation)
            else {
                continue;
            };
            let depth =
                found.entry(holder).or_insert_with(|| Depth { holder: holder.clone(), incarnation, blocks });
            depth.blocks = depth.blocks.max(blocks);
        }
    }
    found.into_values().collect()
}

fn counts(known: &HolderView) -> bool {
    !matches!(known.state, Phase::Unknown | Phase::Gone | Phase::Refused)
}

fn standings(view: &IndexView, now: Duration) -> Vec<Standing> {
    let age = |beat_at: Duration| u64::try_from(now.saturating_sub(beat_at).as_millis()).unwrap_or(u64::MAX);
    let standing = |(holder, known): (&Holder, &HolderView)| Standing {
        holder: holder.clone(),
        phase: known.state,
        incarnation: known.incarnation,
        seq: known.seq,
        beat_seq: known.beat_seq,
        removed: known.removed,
        blocks: known.blocks,
        digest: known.digest,
        agrees: known.agrees,
        coverage: known.coverage,
        running: known.running,
        waiting: known.waiting,
        kv_usage: known.kv_usage,
        engine_healthy: known.engine_healthy,
        beat_age_ms: known.beat_at.map(age),
    };
    view.holders().map(standing).collect()
}
