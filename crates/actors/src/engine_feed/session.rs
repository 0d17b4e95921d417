//! One feed's state without its actor: batches and replays in, numbered deltas and orders out.

use std::collections::VecDeque;
use std::sync::Arc;

use engine_events::{Config, Cursor, Record, Step, Translator, Verdict, vllm};
use identity::{Holder, Incarnation, KeySetDigest, ModelName, SCHEME};
use membership::{Change, Delta, Ring};
use ports::event_feed::{Error, Frame, Replay};

use super::life::is_later;
use super::split::{KEYS_MAX, split};

/// Failed replays in a row after which the feed goes on without: the endpoint may be configured wrongly.
const REPLAY_FAILURES_MAX: u32 = 20;

/// How many batches of a replay are applied at once.
const BACKLOG_PART: usize = 64;

/// What the feed does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Wait for what is published.
    Listen,
    /// Ask for past batches.
    Replay {
        /// First number to ask for.
        from: u64,
    },
    /// Ask again, a little later.
    ReplayLater {
        /// First number to ask for.
        from: u64,
    },
    /// Come back for the rest of a replay, after others had their turn.
    GoOn,
    /// What arrived does not prove which process published it: find out who the engine is.
    Identify,
}

/// What the engine's identity decides, once it was asked for after all that is in question had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The engine does not have what was applied last.
    Contradicted,
    /// A replay, which waits in the backlog, does not show the batch that was applied last.
    Replay {
        /// Whether it leaves out batches after that.
        lost: bool,
    },
    /// Published batches wait, and no replay shows what was before them.
    Published {
        /// Whether batches before them are lost.
        lost: bool,
    },
}

/// What went wrong or was odd, since the actor began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Batches applied.
    pub batches: u64,
    /// Batches that could not be decoded.
    pub malformed: u64,
    /// Batches that came a second time.
    pub duplicates: u64,
    /// Holes, or lower numbers, in what was published.
    pub gaps: u64,
    /// Replays that ended.
    pub replays: u64,
    /// Replays that failed.
    pub replay_failures: u64,
    /// Times that history was lost for good.
    pub losses: u64,
    /// Engine lives begun.
    pub lives: u64,
}

/// How much of the engine's past is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Less than replicas may have seen: the session was resumed from a record, and they may know later deltas.
    Outrun,
    /// Less than the engine can tell.
    Behind,
    /// What the engine can tell.
    CaughtUp,
}

/// A feed's state.
#[derive(Debug)]
pub(super) struct Session {
    model: ModelName,
    holder: Holder,
    translator: Translator,
    cursor: Cursor,
    incarnation: Incarnation,
    engine_started_ms: Option<u64>,
    seq: u64,
    ring: Ring,
    outbox: Vec<Arc<Delta>>,
    /// Published batches that did not follow, until a replay tells what was between.
    pending: Vec<Frame>,
    /// What of a replay is not applied yet, and whether it was the engine's last.
    backlog: VecDeque<Frame>,
    backlog_complete: bool,
    doubt: Option<Doubt>,
    standing: Standing,
    replay_failures: u32,
    /// Whether a replay has brought anything yet: an engine may be told to buffer nothing.
    replays: bool,
    pool_blocks: Option<u64>,
    tally: Tally,
}

impl Session {
    /// Begins with an engine of which nothing is known.
    pub(super) fn begin(
        model: ModelName,
        holder: Holder,
        config: Config,
        incarnation: Incarnation,
        engine_started_ms: Option<u64>,
    ) -> Self {
        Self {
            model,
            holder,
            translator: Translator::new(config),
            cursor: Cursor::new(),
            incarnation,
            engine_started_ms,
            seq: 0,
            ring: Ring::default(),
            outbox: Vec::new(),
            pending: Vec::new(),
            backlog: VecDeque::new(),
            backlog_complete: false,
            doubt: None,
            standing: Standing::Behind,
            replay_failures: 0,
            replays: false,
            pool_blocks: None,
            tally: Tally { lives: 1, ..Tally::default() },
        }
    }

    /// Goes on where a record was made.
    pub(super) fn resume(
        model: ModelName,
        holder: Holder,
        config: Config,
        record: &Record,
    ) -> Result<Self, engine_events::CheckpointError> {
        let translator = Translator::restore(config.clone(), &record.state)?;
        let begun = Self::begin(model, holder, config, record.incarnation, record.engine_started_ms);
        Ok(Self {
            translator,
            cursor: Cursor::at(record.mark),
            seq: record.seq,
            standing: Standing::Outrun,
            ..begun
        })
    }

    /// Begins another engine process's life; nothing is credited to it yet.
    pub(super) fn begin_life(&mut self, incarnation: Incarnation, engine_started_ms: Option<u64>) {
        self.translator = Translator::new(self.translator.config().clone());
        self.cursor.reset();
        self.incarnation = incarnation;
        self.engine_started_ms = engine_started_ms;
        self.seq = 0;
        self.ring.clear();
        self.outbox.clear();
        self.pending.clear();
        self.backlog.clear();
        self.doubt = None;
        self.standing = Standing::Behind;
        self.tally.lives += 1;
    }

    /// Goes on with all that is known under a later life's number.
    pub(super) fn succeed(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
        self.ring.clear();
        self.outbox.clear();
    }

    /// Tells whether an engine that reports this start may be the one that is followed: it reported no earlier one, and
    /// where neither start is known, there is a batch to compare.
    pub(super) fn is_of(&self, started_ms: Option<u64>) -> bool {
        match (self.engine_started_ms, started_ms) {
            (Some(known), Some(started)) => !is_later(known, started),
            (None, _) | (_, None) => self.cursor.mark().is_some(),
        }
    }

    /// Returns what to ask for when the link is new, when nothing came for a while, or when the engine may be another.
    pub(super) fn verify(&self) -> Order {
        Order::Replay { from: self.cursor.replay_from() }
    }

    /// Applies published batches up to the first that does not follow; that and the others wait, as do all before anything
    /// was applied in this life: their numbers alone do not tell whose they are.
    pub(super) fn on_frames(&mut self, frames: Vec<Frame>) -> Order {
        if self.cursor.mark().is_none() && !frames.is_empty() {
            self.pending = frames;
            return self.ask(Doubt::Published { lost: false });
        }
        self.follow(frames)
    }

    fn follow(&mut self, frames: Vec<Frame>) -> Order {
        let mut frames = frames.into_iter();
        while let Some(frame) = frames.next() {
            match self.cursor.on_batch(frame.seq, &frame.payload) {
                Step::Apply => self.apply(&frame),
                Step::Duplicate => self.tally.duplicates += 1,
                Step::Replay { from } => {
                    self.tally.gaps += 1;
                    self.pending = std::iter::once(frame).chain(frames).collect();
                    return Order::Replay { from };
                }
            }
        }
        Order::Listen
    }

    /// Judges a replay that was asked for from `from`, and applies it if it shows what was applied last.
    pub(super) fn on_replay(&mut self, from: u64, replay: Result<Replay, Error>) -> Order {
        let replay = match replay {
            Ok(replay) => replay,
            Err(Error::NoReplay) => return self.without_replay(),
            Err(_) => {
                self.tally.replay_failures += 1;
                self.replay_failures += 1;
                if self.replay_failures < REPLAY_FAILURES_MAX {
                    return Order::ReplayLater { from };
                }
                return self.without_replay();
            }
        };
        self.tally.replays += 1;
        self.replay_failures = 0;
        self.replays |= !replay.frames.is_empty();
        let batches = replay.frames.iter().map(|frame| (frame.seq, &*frame.payload));
        let (skip, doubt) = match self.cursor.on_replay(batches) {
            Verdict::OtherEngine => return self.ask(Doubt::Contradicted),
            Verdict::Lost { .. } if self.is_outrun() => return self.ask(Doubt::Contradicted),
            Verdict::Lost { .. } => (0, Some(Doubt::Replay { lost: true })),
            Verdict::Continues { skip: 0 } if replay.frames.is_empty() && self.pending.is_empty() => {
                (0, None)
            }
            Verdict::Continues { skip: 0 } if replay.frames.is_empty() => {
                (0, Some(Doubt::Published { lost: true }))
            }
            Verdict::Continues { skip: 0 } => (0, Some(Doubt::Replay { lost: false })),
            Verdict::Continues { skip } => (skip, None),
        };
        self.backlog = replay.frames.into_iter().skip(skip).collect();
        self.backlog_complete = replay.complete;
        match doubt {
            Some(doubt) => self.ask(doubt),
            None => self.go_on(),
        }
    }

    /// Has the engine asked who it is before what arrived is applied.
    fn ask(&mut self, doubt: Doubt) -> Order {
        self.doubt = Some(doubt);
        Order::Identify
    }

    /// Applies the next part of a replay.
    pub(super) fn go_on(&mut self) -> Order {
        let part = self.backlog.len().min(BACKLOG_PART);
        let part: Vec<Frame> = self.backlog.drain(..part).collect();
        self.take(part.into_iter());
        if !self.backlog.is_empty() {
            Order::GoOn
        } else if self.backlog_complete {
            // What had been published before was in the replay, unless another process published it.
            self.pending.clear();
            self.catch_up()
        } else {
            self.verify()
        }
    }

    /// Goes on after the engine was asked when it started, which was after all that waits had arrived; the feed on which it
    /// arrived was opened after the engine had told the start that is known. So the same start proves that this very process
    /// published it.
    ///
    /// Answers none where another life has to begin: it is another process; or what was applied last, and the engine does
    /// not have, was published by another; or only so numbers become unambiguous.
    pub(super) fn on_identity(&mut self, started_ms: Option<u64>) -> Option<Order> {
        match self.doubt.take()? {
            Doubt::Contradicted => self.on_contradiction(started_ms),
            _ if self.is_outlived(started_ms) => None,
            Doubt::Replay { lost } => {
                if lost {
                    self.lose();
                }
                Some(self.go_on())
            }
            Doubt::Published { lost: true } => {
                self.lose();
                Some(self.catch_up())
            }
            Doubt::Published { lost: false } => {
                let pending = std::mem::take(&mut self.pending);
                let order = self.follow(pending);
                // The link may have changed behind them.
                Some(if order == Order::Listen { self.verify() } else { order })
            }
        }
    }

    /// Goes on with the same process if it buffers nothing.
    fn on_contradiction(&mut self, started_ms: Option<u64>) -> Option<Order> {
        let same = started_ms.is_some() && started_ms == self.engine_started_ms;
        if !same || self.is_outrun() || self.replays {
            return None;
        }
        if !self.pending.is_empty() {
            self.lose();
        }
        Some(self.catch_up())
    }

    /// Tells whether an engine that reports this start is a later process than the one that is followed.
    pub(super) fn is_outlived(&self, started_ms: Option<u64>) -> bool {
        self.engine_started_ms.zip(started_ms).is_some_and(|(known, started)| is_later(known, started))
    }

    /// Takes the deltas that are to be published, in order.
    pub(super) fn outbox(&mut self) -> Vec<Arc<Delta>> {
        std::mem::take(&mut self.outbox)
    }

    /// Copies the state as of the last batch.
    pub(super) fn record(&self) -> Record {
        Record {
            incarnation: self.incarnation,
            engine_started_ms: self.engine_started_ms,
            seq: self.seq,
            mark: self.cursor.mark(),
            state: self.translator.checkpoint(),
        }
    }

    pub(super) fn learn_start(&mut self, started_ms: u64) {
        self.engine_started_ms.get_or_insert(started_ms);
    }

    pub(super) fn learn_pool(&mut self, blocks: Option<u64>) {
        self.pool_blocks = blocks.or(self.pool_blocks);
    }

    pub(super) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(super) const fn engine_started_ms(&self) -> Option<u64> {
        self.engine_started_ms
    }

    pub(super) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) const fn is_caught_up(&self) -> bool {
        matches!(self.standing, Standing::CaughtUp)
    }

    const fn is_outrun(&self) -> bool {
        matches!(self.standing, Standing::Outrun)
    }

    pub(super) const fn translator(&self) -> &Translator {
        &self.translator
    }

    pub(super) const fn digest(&self) -> &KeySetDigest {
        self.translator.digest()
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }

    /// What a checkpoint would say of how far the session is; equal stamps need no new checkpoint.
    pub(super) fn stamp(&self) -> (Incarnation, u64, Option<u64>) {
        (self.incarnation, self.seq, self.cursor.mark().map(|(seq, _)| seq))
    }

    /// Goes on with what is published alone: history that was missed is lost.
    fn without_replay(&mut self) -> Order {
        self.replay_failures = 0;
        match (self.is_outrun(), self.pending.is_empty()) {
            // Nothing contradicts the record: the next batch will show whether it follows.
            (true, true) => self.catch_up(),
            (true, false) => self.ask(Doubt::Contradicted),
            (false, false) => self.ask(Doubt::Published { lost: true }),
            (false, true) => {
                if self.cursor.mark().is_none() {
                    self.lose();
                }
                self.catch_up()
            }
        }
    }

    /// Applies batches each of which must follow; the first may have any number where nothing was applied before.
    fn take(&mut self, frames: impl Iterator<Item = Frame>) {
        for frame in frames {
            let follows = self.cursor.mark().is_none_or(|(last, _)| last.checked_add(1) == Some(frame.seq));
            if follows {
                self.cursor.advance(frame.seq, &frame.payload);
                self.apply(&frame);
            }
        }
    }

    /// Applies what waited, as far as it follows.
    fn catch_up(&mut self) -> Order {
        let pending = std::mem::take(&mut self.pending);
        self.take(pending.into_iter());
        self.standing = Standing::CaughtUp;
        Order::Listen
    }

    /// Forgets what can no longer be known.
    fn lose(&mut self) {
        self.tally.losses += 1;
        let changes = self.translator.forget(self.pool_blocks);
        self.cursor.reset();
        self.emit(changes);
    }

    fn apply(&mut self, frame: &Frame) {
        self.tally.batches += 1;
        if frame.seq == 0 && self.translator.blocks() == 0 {
            // An engine's first batch: nothing was cached before it, whatever was feared.
            self.translator = Translator::new(self.translator.config().clone());
        }
        match vllm::decode(&frame.payload) {
            Ok(batch) => {
                let changes = self.translator.apply(&batch);
                self.emit(changes);
            }
            Err(_) => self.tally.malformed += 1,
        }
    }

    fn emit(&mut self, changes: Vec<Change>) {
        for changes in split(changes, KEYS_MAX) {
            self.seq += 1;
            let delta = Arc::new(Delta {
                scheme: SCHEME.to_owned(),
                model: self.model.clone(),
                worker: self.holder.worker.clone(),
                rank: self.holder.rank,
                incarnation: self.incarnation,
                seq: self.seq,
                changes,
            });
            self.ring.push(Arc::clone(&delta));
            self.outbox.push(delta);
        }
    }
}
