//! Parent: the node · Asks: nobody (tells the header cache)
//! Bound: 4,096 waiting messages; 1,024 open questions of 16 Mi tokens in all, 256 names seen for each
//! When it dies: names asked for are learned from later requests; those learned stay in the header cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use actor_kit::{Actor, Address, Children, Fault, Me, Node, Spec};
use identity::{BlockKey, Holder, MediaId, ModelName};
use membership::MediaRun;
use ports::Clock;
use prompt::{Nameless, Sighted};

use crate::header_cache::{HeaderCache, Version};
use crate::replicator::MediaListener;

/// Learns the names that engines give to images which they fetch themselves: from requests in flight and what engines
/// tell of their prompts. Cheap to clone, outlives the actor's restarts.
#[derive(Clone, Debug)]
pub struct NameLearnerHandle {
    address: Address<Msg>,
    counts: Arc<Counts>,
}

/// What a name learner needs.
#[derive(Clone, Debug)]
pub struct NameLearnerArgs {
    /// This frontend's name, unique in the namespace.
    pub frontend: String,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// Keeps the names.
    pub headers: HeaderCache,
}

/// A prompt some of whose images have no name yet.
#[derive(Clone, Debug)]
pub struct Riddle {
    /// The model.
    pub model: ModelName,
    /// The prompt.
    pub nameless: Nameless,
    /// What is behind the images' URLs, by index among the request's media.
    pub versions: Vec<(usize, Version)>,
}

/// What a name learner has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Names learned.
    pub learned: u64,
    /// Requests that told no name: nothing that fits was told, or more than one thing that does.
    pub unsolved: u64,
}

#[derive(Debug, Default)]
struct Counts {
    tickets: AtomicU64,
    open: AtomicUsize,
    learned: AtomicU64,
    unsolved: AtomicU64,
}

/// An open question; dropped before its request is answered, it is given up.
#[derive(Debug)]
pub struct Quest {
    ticket: u64,
    address: Address<Msg>,
    answered: bool,
}

impl Quest {
    /// Notes that the request has been answered: what its images are called is known soon. Prompt tokens that came from
    /// the engine's cache, where it tells, bring no news.
    pub fn answered(mut self, cached_tokens: Option<u32>) {
        self.answered = true;
        drop(self.address.offer(Msg::Answered(self.ticket, cached_tokens)));
    }
}

impl Drop for Quest {
    fn drop(&mut self) {
        if !self.answered {
            drop(self.address.offer(Msg::GivenUp(self.ticket)));
        }
    }
}

impl NameLearnerHandle {
    /// Starts the learner in a node, as `name-learner/<frontend>`.
    ///
    /// # Errors
    /// As [`Node::supervise`].
    pub async fn start(node: &Node, args: NameLearnerArgs) -> Result<Self, actor_kit::node::Error> {
        let counts = Arc::<Counts>::default();
        let spec = Spec::new(format!("name-learner/{}", args.frontend), MAILBOX_MAX);
        let address = node.supervise::<State>(spec, (args, Arc::clone(&counts))).await?;
        Ok(Self { address, counts })
    }

    /// Asks for the names in a prompt that is on its way to a holder.
    #[must_use]
    pub fn begin(&self, riddle: Arc<Riddle>, holder: Holder, block_size: u32) -> Quest {
        let ticket = self.counts.tickets.fetch_add(1, Ordering::Relaxed);
        self.counts.open.fetch_add(1, Ordering::AcqRel);
        let opened = self.address.offer(Msg::Began(ticket, Box::new(Open::new(riddle, holder, block_size))));
        if opened.is_err() {
            self.counts.open.fetch_sub(1, Ordering::AcqRel);
        }
        Quest { ticket, address: self.address.clone(), answered: false }
    }

    /// Notes that predictions by some names were wrong: they are forgotten, to be learned anew.
    pub fn distrust(&self, model: &ModelName, versions: &[Version]) {
        if !versions.is_empty() {
            drop(self.address.offer(Msg::Wrong(model.clone(), versions.to_vec())));
        }
    }

    /// Returns what was counted; no mailbox hop.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally {
            learned: self.counts.learned.load(Ordering::Relaxed),
            unsolved: self.counts.unsolved.load(Ordering::Relaxed),
        }
    }
}

impl MediaListener for NameLearnerHandle {
    fn computed(&self, holder: &Holder, runs: &[&MediaRun]) {
        if self.counts.open.load(Ordering::Acquire) > 0 {
            let shown = runs.iter().map(|run| (run.id.clone(), run.first_key)).collect();
            drop(self.address.offer(Msg::Shown(holder.clone(), shown)));
        }
    }
}

const MAILBOX_MAX: usize = 4096;
/// How long after its answer a request's events may still come.
const SETTLE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);
/// Longest time a question stays open.
const OPEN_FOR: Duration = Duration::from_secs(600);
const OPEN_MAX: usize = 1024;
const TOKENS_MAX: usize = 16 << 20;
const SHOWN_MAX: usize = 256;

#[derive(Debug)]
enum Msg {
    Began(u64, Box<Open>),
    Shown(Holder, Vec<(MediaId, BlockKey)>),
    Answered(u64, Option<u32>),
    GivenUp(u64),
    Wrong(ModelName, Vec<Version>),
    Tick,
}

/// A question, and what its holder has shown since.
#[derive(Debug)]
struct Open {
    riddle: Arc<Riddle>,
    holder: Holder,
    block_size: u32,
    shown: Vec<(MediaId, BlockKey)>,
    cached_tokens: u32,
    /// When it is to be solved; until then, when it is given up.
    due: Duration,
    answered: bool,
}

impl Open {
    const fn new(riddle: Arc<Riddle>, holder: Holder, block_size: u32) -> Self {
        let due = Duration::ZERO;
        Self { riddle, holder, block_size, shown: Vec::new(), cached_tokens: 0, due, answered: false }
    }

    /// Finds which version has which name, as far as what was shown tells.
    fn solve(&self) -> Vec<(Version, MediaId)> {
        let shown: Vec<Sighted<'_>> = self.shown.iter().map(|(id, key)| (id, *key)).collect();
        let found = self.riddle.nameless.solve(self.block_size, self.cached_tokens, &shown);
        let version = |index: usize| self.riddle.versions.iter().find(|(other, _)| *other == index);
        found.into_iter().filter_map(|(index, id)| Some((version(index)?.1, id))).collect()
    }
}

struct State {
    args: NameLearnerArgs,
    counts: Arc<Counts>,
    open: HashMap<u64, Open>,
    tokens: usize,
    _children: Children<Msg>,
}

impl Actor for State {
    type Msg = Msg;
    type Args = (NameLearnerArgs, Arc<Counts>);

    fn begin(me: Me<Msg>, (args, counts): Self::Args) -> Result<Self, Fault> {
        let mut children = Children::new(me, 1);
        children.tick(TICK, || Msg::Tick)?;
        counts.open.store(0, Ordering::Release);
        Ok(Self { args, counts, open: HashMap::new(), tokens: 0, _children: children })
    }

    async fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        let now = self.args.clock.now();
        match message {
            Msg::Began(ticket, open) => self.begin(ticket, *open, now),
            Msg::Shown(holder, shown) => self.show(&holder, &shown),
            Msg::Answered(ticket, cached_tokens) => self.answered(ticket, cached_tokens, now),
            Msg::GivenUp(ticket) => drop(self.close(ticket)),
            Msg::Wrong(model, versions) => {
                for version in versions {
                    self.args.headers.unname(version, &model).await;
                }
            }
            Msg::Tick => self.settle(now).await,
        }
        Ok(())
    }
}

impl State {
    fn begin(&mut self, ticket: u64, open: Open, now: Duration) {
        let tokens = open.riddle.nameless.tokens();
        if self.open.len() >= OPEN_MAX || self.tokens.saturating_add(tokens) > TOKENS_MAX {
            self.counts.unsolved.fetch_add(1, Ordering::Relaxed);
        } else {
            self.tokens += tokens;
            self.open.insert(ticket, Open { due: now + OPEN_FOR, ..open });
        }
        self.count_open();
    }

    fn show(&mut self, holder: &Holder, shown: &[(MediaId, BlockKey)]) {
        for open in self.open.values_mut().filter(|open| open.holder == *holder) {
            let room = SHOWN_MAX.saturating_sub(open.shown.len());
            open.shown.extend(shown.iter().take(room).cloned());
        }
    }

    fn answered(&mut self, ticket: u64, cached_tokens: Option<u32>, now: Duration) {
        if let Some(open) = self.open.get_mut(&ticket) {
            open.cached_tokens = cached_tokens.unwrap_or(0);
            (open.due, open.answered) = (now + SETTLE, true);
        }
    }

    fn close(&mut self, ticket: u64) -> Option<Open> {
        let open = self.open.remove(&ticket)?;
        self.tokens = self.tokens.saturating_sub(open.riddle.nameless.tokens());
        self.count_open();
        Some(open)
    }

    fn count_open(&self) {
        self.counts.open.store(self.open.len(), Ordering::Release);
    }

    /// Solves the questions whose time has come. A name that would solve two of them differently solves neither: which
    /// request brought it is not told.
    async fn settle(&mut self, now: Duration) {
        let due: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.due <= now).map(|(ticket, _)| *ticket).collect();
        let mut names = Vec::new();
        for ticket in &due {
            let Some(open) = self.open.get(ticket).filter(|open| open.answered) else { continue };
            let rivals =
                self.open.iter().filter(|(other, rival)| *other != ticket && rival.holder == open.holder);
            let rivals: Vec<(Version, MediaId)> = rivals.flat_map(|(_, rival)| rival.solve()).collect();
            let clear = |(version, id): &(Version, MediaId)| {
                rivals.iter().all(|(other, theirs)| theirs != id || other == version)
            };
            let solved: Vec<_> = open.solve().into_iter().take_while(clear).collect();
            if solved.is_empty() {
                self.counts.unsolved.fetch_add(1, Ordering::Relaxed);
            }
            names.extend(solved.into_iter().map(|(version, id)| (open.riddle.model.clone(), version, id)));
        }
        for ticket in due {
            drop(self.close(ticket));
        }
        for (model, version, id) in names {
            self.counts.learned.fetch_add(1, Ordering::Relaxed);
            self.args.headers.name(version, &model, &id).await;
        }
    }
}
