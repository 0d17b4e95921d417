//! How differences are measured, fetched and verified.

use std::cmp::Ordering;
use std::time::Duration;

use identity::KeySetDigest;

use super::{Check, Course, Goal, Proof, Replica, Step, Turn, Want};
use crate::Delta;
use crate::replica::event::{Answer, Ask, Effect, Op, Phase};

impl Replica {
    /// Asks the index for its digest; a comparison with a beat gives way to what is under way.
    pub(super) fn check(&mut self, goal: Goal, turn: &mut Turn) {
        if matches!(goal, Goal::Beat(_)) && self.check.is_some() {
            return;
        }
        let ticket = self.ticket();
        self.check = Some(Check { ticket, since: turn.now, goal });
        turn.index(Op::Check { ticket });
    }

    fn ticket(&mut self) -> u32 {
        self.tickets = self.tickets.wrapping_add(1);
        self.tickets
    }

    /// Stops applying deltas and measures the own digest, to fetch what differs.
    pub(super) fn measure(&mut self, turn: &mut Turn) {
        self.proof = Proof::Done;
        if self.status.phase != Phase::Syncing {
            self.status.phase = Phase::Repairing;
        }
        self.step = Step::Measuring;
        self.check(Goal::Measure, turn);
    }

    pub(super) fn checked(&mut self, ticket: u32, digest: &KeySetDigest, turn: &mut Turn) {
        let Some(check) = self.check.take_if(|check| check.ticket == ticket) else { return };
        match check.goal {
            Goal::Beat(expected) => {
                self.agreed(digest.fold() == expected);
                if self.status.agrees == Some(false) && self.flows() {
                    self.measure(turn);
                } else if self.status.agrees == Some(true) {
                    self.proved();
                }
            }
            Goal::Prove(expected) if digest.fold() == expected => {
                self.agreed(true);
                self.proved();
            }
            Goal::Prove(_) => {
                // The other replica was wrong, or is by now: the agent tells what differs.
                self.agreed(false);
                self.measure(turn);
            }
            Goal::Verify(expected) if digest.fold() == expected => {
                self.agreed(true);
                if self.step == Step::Idle {
                    self.go_live();
                }
            }
            Goal::Verify(_) => {
                self.status.refuted += 1;
                self.agreed(false);
                self.wrong = true;
                self.fail(Want::Snapshot, turn);
            }
            Goal::Measure => {
                let joins = self.course == Course::Joins;
                if joins {
                    self.course = Course::Syncs;
                }
                let want = match (digest.is_empty(), joins) {
                    (true, true) => Want::Peer,
                    (true, false) => Want::Snapshot,
                    (false, _) => Want::Buckets(digest.clone()),
                };
                self.plan(want, turn);
            }
        }
    }

    /// What another replica gave is what the agent has.
    fn proved(&mut self) {
        let was = std::mem::replace(&mut self.proof, Proof::Done);
        if was != Proof::Done && !self.fetches_range() {
            self.step = Step::Idle;
            self.go_live();
        }
    }

    const fn agreed(&mut self, agrees: bool) {
        self.status.agrees = Some(agrees);
        if agrees {
            (self.failures, self.quarantines, self.wrong) = (0, 0, false);
        }
    }

    /// Asks at once when joining, and after a jitter when repairing.
    pub(super) fn plan(&mut self, want: Want, turn: &mut Turn) {
        let jitter = if self.status.phase == Phase::Syncing { Duration::ZERO } else { self.jitter() };
        self.step = Step::Due { want, at: turn.now + jitter };
        self.ask_if_due(turn);
    }

    pub(super) fn ask_if_due(&mut self, turn: &mut Turn) {
        let Some(incarnation) = self.status.incarnation else { return };
        let audible = self.heard_at.is_some_and(|at| turn.now.saturating_sub(at) < self.policy.silence);
        let Step::Due { want, at } = &self.step else { return };
        if *at > turn.now || !audible {
            return;
        }
        let want = want.clone();
        let ask = match &want {
            Want::Range => Ask::Range { incarnation, from: self.status.seq.saturating_add(1) },
            Want::Buckets(digest) => Ask::Buckets { incarnation, digest: digest.clone() },
            Want::Snapshot => Ask::Snapshot { incarnation },
            Want::Peer => Ask::Peer { incarnation },
            Want::Proof => Ask::Digest { incarnation },
        };
        let ticket = self.ticket();
        self.step = Step::Asked { want, ticket, since: turn.now };
        turn.effects.push(Effect::Ask { ticket, ask });
    }

    /// An earlier life was heard, which counts no more. If the present one's agent has fallen silent, it was a second one
    /// that is gone, and whoever speaks now would never be heard again.
    pub(super) fn call_successor(&mut self, turn: &mut Turn) {
        let silent = self.sign_at().is_none_or(|at| turn.now.saturating_sub(at) >= self.policy.silence);
        if silent && self.succession.is_none() {
            let ticket = self.ticket();
            self.succession = Some(ticket);
            let ask = Ask::Succeed { silent: self.latest.max(self.floor) };
            turn.effects.push(Effect::Ask { ticket, ask });
        }
    }

    pub(super) fn answered(&mut self, ticket: u32, answer: Answer, turn: &mut Turn) {
        if self.succession.take_if(|asked| *asked == ticket).is_some() {
            // The later life will be heard.
            return;
        }
        let Step::Asked { want, ticket: asked, .. } = &self.step else { return };
        if *asked != ticket {
            return;
        }
        let want = want.clone();
        match (answer, want) {
            (Answer::Range(deltas), Want::Range) => self.range(deltas, turn),
            (Answer::Buckets { seq, digest, buckets, runs }, Want::Buckets(_)) => {
                self.install(Op::ReplaceBuckets { seq, buckets, runs }, seq, &digest, turn);
            }
            (Answer::Snapshot { seq, runs, .. }, Want::Peer) => {
                self.adopt(Op::Replace { seq, runs }, seq, turn);
            }
            (Answer::Digest { seq, digest }, Want::Proof) => self.compare(seq, digest.fold(), turn),
            (Answer::Snapshot { seq, digest, runs }, _) => {
                self.install(Op::Replace { seq, runs }, seq, &digest, turn);
            }
            (Answer::Forgotten, Want::Range) => self.measure(turn),
            (Answer::TooLarge, Want::Buckets(_)) => self.plan(Want::Snapshot, turn),
            (Answer::Incarnation(present), want) => {
                let later = present > self.latest && present >= self.floor;
                if later {
                    if want == Want::Peer {
                        // The card was behind; the same replica may have the present life's set.
                        self.course = Course::Joins;
                    }
                    self.begin(present, None, turn);
                } else {
                    self.fail(want, turn);
                }
            }
            (
                Answer::Range(_)
                | Answer::Buckets { .. }
                | Answer::Digest { .. }
                | Answer::Forgotten
                | Answer::TooLarge
                | Answer::NoPeer
                | Answer::Failed,
                want,
            ) => {
                self.fail(want, turn);
            }
        }
    }

    /// Applies a fetched range; asks for the rest if it does not reach far enough.
    fn range(&mut self, deltas: Vec<Delta>, turn: &mut Turn) {
        let before = self.status.seq;
        for delta in deltas {
            if Some(delta.incarnation) == self.status.incarnation
                && delta.seq == self.status.seq.saturating_add(1)
            {
                self.apply(delta.changes, turn);
            }
        }
        if self.status.seq == before {
            self.fail(Want::Range, turn);
            return;
        }
        self.buffer.forget_through(self.status.seq);
        self.drain(turn);
        if self.gap_since.is_some() {
            self.gap_since = Some(turn.now);
            self.step = Step::Due { want: Want::Range, at: turn.now };
            self.ask_if_due(turn);
        }
    }

    /// Replaces by what was fetched, wants it verified, and lets deltas flow again.
    pub(super) fn install(&mut self, op: Op, seq: u64, digest: &KeySetDigest, turn: &mut Turn) {
        turn.index(op);
        self.status.seq = seq;
        self.step = Step::Idle;
        self.gap_since = None;
        self.behind = 0;
        self.buffer.forget_through(seq);
        self.check(Goal::Verify(digest.fold()), turn);
        self.drain(turn);
        if !self.buffer.is_empty() {
            // The copy was older than the deltas that waited for it.
            self.step = Step::Due { want: Want::Range, at: turn.now };
            self.ask_if_due(turn);
        }
    }

    /// Takes over what another replica has, and asks the agent for proof of it while deltas flow again.
    fn adopt(&mut self, op: Op, seq: u64, turn: &mut Turn) {
        turn.index(op);
        self.status.seq = seq;
        self.proof = Proof::Wanted;
        self.gap_since = None;
        self.behind = 0;
        self.buffer.forget_through(seq);
        self.step = Step::Due { want: Want::Proof, at: turn.now };
        self.ask_if_due(turn);
        self.drain(turn);
    }

    /// Compares with the agent's digest, now or once its sequence is reached.
    fn compare(&mut self, seq: u64, digest: u64, turn: &mut Turn) {
        self.step = Step::Idle;
        match seq.cmp(&self.status.seq) {
            Ordering::Equal => self.check(Goal::Prove(digest), turn),
            Ordering::Greater => {
                self.proof = Proof::At { seq, digest };
                self.gap_since.get_or_insert(turn.now);
            }
            // Deltas overtook the answer: a beat will tell.
            Ordering::Less => {}
        }
    }

    /// Counts a failure: tries again later, or gives up for a while.
    pub(super) fn fail(&mut self, want: Want, turn: &mut Turn) {
        match want {
            Want::Peer => return self.plan(Want::Snapshot, turn),
            Want::Proof => {
                // Beats prove as well.
                self.step = Step::Idle;
                return;
            }
            Want::Range | Want::Buckets(_) | Want::Snapshot => {}
        }
        self.failures += 1;
        if self.status.phase == Phase::Live {
            self.status.phase = Phase::Repairing;
        }
        if self.failures < self.policy.failures_max {
            let pause = self.policy.retry_min.saturating_mul(1 << self.failures.min(8));
            self.step = Step::Due { want, at: turn.now + pause + self.jitter() };
            self.ask_if_due(turn);
            return;
        }
        // Only answers that were wrong make quarantines longer: an agent that did not answer may be back at any time.
        let pause = self.policy.quarantine_min.saturating_mul(1 << self.quarantines.min(16));
        self.quarantines += u32::from(self.wrong);
        self.wrong = false;
        self.failures = 0;
        self.status.phase = Phase::Quarantined;
        let until = turn.now + pause.min(self.policy.quarantine_max) + self.jitter();
        self.pause(until);
    }

    fn pause(&mut self, until: Duration) {
        self.step = Step::Paused { until };
        self.check = None;
        self.gap_since = None;
        self.buffer.clear();
    }

    pub(super) fn no_room(&mut self, turn: &mut Turn) {
        if matches!(self.status.phase, Phase::Unknown | Phase::Gone | Phase::Refused) {
            return;
        }
        turn.index(Op::End);
        self.indexed = false;
        self.status.phase = Phase::Refused;
        (self.status.agrees, self.status.seq) = (None, 0);
        let until = turn.now + self.policy.refused_pause + self.jitter();
        self.pause(until);
    }

    /// Leaves a pause and compares with the agent.
    pub(super) fn resume(&mut self, turn: &mut Turn) {
        let Some(incarnation) = self.status.incarnation else { return };
        if self.status.phase == Phase::Refused {
            self.begin(incarnation, None, turn);
        } else {
            self.status.phase = if self.was_live() { Phase::Repairing } else { Phase::Syncing };
            self.measure(turn);
        }
    }

    pub(super) fn index_reset(&mut self, turn: &mut Turn) {
        if matches!(self.status.phase, Phase::Unknown | Phase::Gone | Phase::Refused) {
            return;
        }
        if let Some(incarnation) = self.status.incarnation {
            let heard = (self.status.beat.take(), self.status.beat_at);
            self.begin(incarnation, None, turn);
            (self.status.beat, self.status.beat_at) = heard;
        }
    }

    pub(super) fn link_up(&mut self, turn: &mut Turn) {
        self.failures = 0;
        if self.status.phase == Phase::Quarantined {
            self.resume(turn);
        }
    }

    /// Rolls a jitter (xorshift64*, Vigna 2016).
    pub(super) fn jitter(&mut self) -> Duration {
        self.dice = self.dice.max(1);
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        let roll = self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        let max_us = u64::try_from(self.policy.jitter_max.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(roll % max_us)
    }
}
