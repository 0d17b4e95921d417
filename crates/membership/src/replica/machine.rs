//! The state machine of one holder: lives, deltas and beats. What is fetched is in `repair`.

mod repair;

use std::cmp::Ordering;
use std::time::Duration;

use identity::{Incarnation, KeySetDigest};

use super::buffer::Buffer;
use super::event::{Effect, Event, Op, Phase, Status};
use super::policy::Policy;
use crate::{Beat, Delta};

/// A replica of one holder's set: pure, told of events, answers effects.
#[derive(Clone, Debug)]
pub struct Replica {
    policy: Policy,
    dice: u64,
    floor: Incarnation,
    /// The latest life ever heard of; earlier ones are over.
    latest: Incarnation,
    /// Whether the index may have blocks of the holder.
    indexed: bool,
    status: Status,
    step: Step,
    check: Option<Check>,
    buffer: Buffer,
    tickets: u32,
    /// The request under way that an earlier life's agent goes on as a later one.
    succession: Option<u32>,
    heard_at: Option<Duration>,
    known_at: Option<Duration>,
    gap_since: Option<Duration>,
    behind: u32,
    failures: u32,
    quarantines: u32,
    /// Whether something fetched did not verify since the last quarantine.
    wrong: bool,
    course: Course,
    proof: Proof,
}

/// How far the holder has come in its present life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The whole index is joining: a card is reason enough to ask, and another replica may be asked, once.
    Joins,
    /// It has not been live.
    Syncs,
    /// It was live.
    Lived,
}

/// Whether the agent's digest has proved what another replica gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It has, or nothing is of another replica.
    Done,
    /// Any digest at equal sequence will.
    Wanted,
    /// This digest will, at a sequence still to come.
    At { seq: u64, digest: u64 },
}

/// What the replica does beside applying deltas.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Nothing.
    Idle,
    /// It measures its own digest, to compare buckets.
    Measuring,
    /// It will ask.
    Due { want: Want, at: Duration },
    /// It has asked.
    Asked { want: Want, ticket: u32, since: Duration },
    /// It waits, quarantined or refused.
    Paused { until: Duration },
}

#[derive(Clone, Debug, PartialEq)]
enum Want {
    Range,
    Buckets(KeySetDigest),
    Snapshot,
    Peer,
    Proof,
}

/// A digest asked of the index.
#[derive(Clone, Debug)]
struct Check {
    ticket: u32,
    since: Duration,
    goal: Goal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To compare with a beat at equal sequence.
    Beat(u64),
    /// To verify what was fetched.
    Verify(u64),
    /// To prove by the agent's digest what another replica gave.
    Prove(u64),
    /// To ask for differing buckets.
    Measure,
}

/// One event being handled: when, and what it leads to.
#[derive(Debug)]
struct Turn {
    now: Duration,
    effects: Vec<Effect>,
}

impl Turn {
    fn index(&mut self, op: Op) {
        self.effects.push(Effect::Index(op));
    }
}

impl Replica {
    /// Begins without knowledge, as part of an index that is joining: a card is reason enough to ask, and another replica
    /// may be asked first.
    #[must_use]
    pub fn joining(policy: Policy, seed: u64) -> Self {
        Self { course: Course::Joins, ..Self::new(policy, seed) }
    }

    /// Begins without knowledge; `seed` decides jitter.
    #[must_use]
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            dice: seed,
            floor: Incarnation::default(),
            latest: Incarnation::default(),
            indexed: false,
            status: Status::default(),
            step: Step::Idle,
            check: None,
            buffer: Buffer::new(policy.buffer_deltas_max, policy.buffer_bytes_max),
            tickets: 0,
            succession: None,
            heard_at: None,
            known_at: None,
            gap_since: None,
            behind: 0,
            failures: 0,
            quarantines: 0,
            wrong: false,
            course: Course::Syncs,
            proof: Proof::Done,
        }
    }

    /// Tells whether the holder was live in its present life.
    #[must_use]
    pub const fn was_live(&self) -> bool {
        matches!(self.course, Course::Lived)
    }

    /// Returns the state as others see it.
    #[must_use]
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// Returns when there was last a sign of the holder.
    #[must_use]
    pub const fn sign_at(&self) -> Option<Duration> {
        match self.heard_at {
            Some(at) => Some(at),
            None => self.known_at,
        }
    }

    /// Tells whether the answer to a request is still wanted.
    #[must_use]
    pub fn awaits(&self, ticket: u32) -> bool {
        self.succession == Some(ticket)
            || matches!(&self.step, Step::Asked { ticket: asked, .. } if *asked == ticket)
    }

    /// Takes an event and answers what is to be done, in order.
    pub fn step(&mut self, event: Event, now: Duration) -> Vec<Effect> {
        let mut turn = Turn { now, effects: Vec::new() };
        match event {
            Event::Floor(floor) => self.raise_floor(floor, &mut turn),
            Event::Known(incarnation) => self.know(incarnation, &turn),
            Event::Leave => self.leave(Phase::Gone, &mut turn),
            Event::Delta(delta) => self.delta(delta, &mut turn),
            Event::Beat(beat) => self.beat(beat, &mut turn),
            Event::Answered { ticket, answer } => self.answered(ticket, answer, &mut turn),
            Event::Checked { ticket, digest } => self.checked(ticket, &digest, &mut turn),
            Event::NoRoom => self.no_room(&mut turn),
            Event::IndexReset => self.index_reset(&mut turn),
            Event::LinkUp => self.link_up(&mut turn),
            Event::Tick => self.tick(&mut turn),
        }
        turn.effects
    }

    fn raise_floor(&mut self, floor: Incarnation, turn: &mut Turn) {
        self.floor = floor;
        if self.status.incarnation.is_some_and(|incarnation| incarnation < floor) {
            self.leave(Phase::Unknown, turn);
            self.status.incarnation = None;
        }
        if self.course == Course::Joins
            && self.status.phase == Phase::Unknown
            && floor >= self.latest
            && floor > Incarnation::default()
        {
            // Who has a card may be asked, and need not be waited for.
            self.heard_at = Some(turn.now);
            self.begin(floor, None, turn);
        }
    }

    fn know(&mut self, incarnation: Incarnation, turn: &Turn) {
        self.latest = self.latest.max(incarnation);
        self.indexed = true;
        self.known_at = Some(turn.now);
    }

    fn leave(&mut self, phase: Phase, turn: &mut Turn) {
        if self.indexed {
            self.indexed = false;
            turn.index(Op::End);
        }
        self.forget();
        self.status.phase = phase;
    }

    /// Drops all that belongs to the present course of one life, but for the life itself.
    fn forget(&mut self) {
        self.status.seq = 0;
        self.status.agrees = None;
        (self.status.beat, self.status.beat_at) = (None, None);
        self.step = Step::Idle;
        self.check = None;
        self.buffer.clear();
        self.gap_since = None;
        (self.behind, self.failures, self.quarantines) = (0, 0, 0);
        self.wrong = false;
        self.proof = Proof::Done;
        self.succession = None;
        if self.course == Course::Lived {
            self.course = Course::Syncs;
        }
    }

    /// Tells whether a message of a life counts, and begins the life if it is a later one.
    fn accept(&mut self, incarnation: Incarnation, beat: Option<&Beat>, turn: &mut Turn) -> bool {
        if incarnation < self.floor.max(self.latest) {
            return false;
        }
        self.heard_at = Some(turn.now);
        let begun = !matches!(self.status.phase, Phase::Unknown | Phase::Gone);
        if !begun || self.status.incarnation != Some(incarnation) {
            self.begin(incarnation, beat, turn);
        }
        true
    }

    fn begin(&mut self, incarnation: Incarnation, beat: Option<&Beat>, turn: &mut Turn) {
        self.forget();
        self.latest = incarnation;
        self.indexed = true;
        self.status.incarnation = Some(incarnation);
        self.status.phase = Phase::Syncing;
        turn.index(Op::Begin { incarnation });
        match beat {
            Some(beat) if beat.blocks == 0 => {
                let nothing = Op::Replace { seq: beat.seq, runs: Vec::new() };
                self.install(nothing, beat.seq, &KeySetDigest::default(), turn);
            }
            Some(_) | None => self.measure(turn),
        }
    }

    fn delta(&mut self, delta: Delta, turn: &mut Turn) {
        if !self.accept(delta.incarnation, None, turn) || matches!(self.step, Step::Paused { .. }) {
            return;
        }
        if delta.seq > self.status.seq || !self.flows() {
            self.buffer.insert(delta);
            self.drain(turn);
        }
    }

    /// Tells whether deltas may be applied now.
    const fn flows(&self) -> bool {
        matches!(
            self.step,
            Step::Idle
                | Step::Due { want: Want::Range | Want::Proof, .. }
                | Step::Asked { want: Want::Range | Want::Proof, .. }
        )
    }

    const fn fetches_range(&self) -> bool {
        matches!(self.step, Step::Due { want: Want::Range, .. } | Step::Asked { want: Want::Range, .. })
    }

    fn go_live(&mut self) {
        self.status.phase = Phase::Live;
        self.course = Course::Lived;
    }

    /// Applies the deltas whose turn it is, and sees whether one is missing.
    fn drain(&mut self, turn: &mut Turn) {
        if !self.flows() {
            return;
        }
        while let Some(changes) = self.buffer.take(self.status.seq.saturating_add(1)) {
            self.apply(changes, turn);
        }
        let ahead = self.status.beat.as_ref().is_some_and(|beat| beat.seq > self.status.seq);
        if ahead || !self.buffer.is_empty() {
            self.gap_since.get_or_insert(turn.now);
            return;
        }
        self.gap_since = None;
        if self.fetches_range() {
            // The range arrived by itself.
            self.step = Step::Idle;
            self.settle();
        }
    }

    fn apply(&mut self, changes: Vec<crate::Change>, turn: &mut Turn) {
        self.status.seq = self.status.seq.saturating_add(1);
        turn.index(Op::Apply { seq: self.status.seq, changes });
        if let Some(beat) = &self.status.beat
            && beat.seq == self.status.seq
        {
            let goal = Goal::Beat(beat.digest);
            self.check(goal, turn);
        }
        if let Proof::At { seq, digest } = self.proof
            && seq == self.status.seq
        {
            self.proof = Proof::Wanted;
            self.check(Goal::Prove(digest), turn);
        }
    }

    /// Returns to `Live` unless something fetched still has to be verified.
    fn settle(&mut self) {
        let verifying = self.check.as_ref().is_some_and(|check| matches!(check.goal, Goal::Verify(_)));
        let proven = !verifying && self.proof == Proof::Done;
        if proven && matches!(self.status.phase, Phase::Syncing | Phase::Repairing) {
            self.go_live();
        }
    }

    fn beat(&mut self, beat: Beat, turn: &mut Turn) {
        let silent = self.heard_at.is_none_or(|at| turn.now.saturating_sub(at) >= self.policy.silence);
        if !self.accept(beat.incarnation, Some(&beat), turn) {
            self.call_successor(turn);
            return;
        }
        let (seq, digest) = (beat.seq, beat.digest);
        (self.status.beat, self.status.beat_at) = (Some(beat), Some(turn.now));
        if matches!(self.step, Step::Paused { .. }) {
            // Whose answers were wrong sits its time out; who gave none is there again.
            let unheard = silent || self.quarantines == 0;
            if unheard && self.status.phase == Phase::Quarantined {
                self.resume(turn);
            }
            return;
        }
        if !self.flows() {
            return;
        }
        match seq.cmp(&self.status.seq) {
            Ordering::Equal => {
                self.behind = 0;
                self.check(Goal::Beat(digest), turn);
            }
            Ordering::Greater => {
                self.behind = 0;
                self.gap_since.get_or_insert(turn.now);
            }
            Ordering::Less => {
                self.behind += 1;
                if self.behind >= self.policy.behind_max {
                    self.behind = 0;
                    self.measure(turn);
                }
            }
        }
    }

    fn tick(&mut self, turn: &mut Turn) {
        let patience = self.policy.patience;
        let now = turn.now;
        let overdue = |since: Duration| now.saturating_sub(since) >= patience;
        if self.check.as_ref().is_some_and(|check| overdue(check.since)) {
            self.check = None;
            if self.step == Step::Measuring {
                self.measure(turn);
            }
        }
        match &self.step {
            Step::Idle => {
                let gap_patience = self.policy.gap_patience;
                if self.gap_since.is_some_and(|since| turn.now.saturating_sub(since) >= gap_patience) {
                    if self.status.phase == Phase::Live {
                        self.status.phase = Phase::Repairing;
                    }
                    self.plan(Want::Range, turn);
                }
            }
            Step::Due { .. } => self.ask_if_due(turn),
            Step::Asked { want, since, .. } if overdue(*since) => {
                let want = want.clone();
                self.fail(want, turn);
            }
            Step::Paused { until } if *until <= turn.now => self.resume(turn),
            Step::Asked { .. } | Step::Measuring | Step::Paused { .. } => {}
        }
    }
}
