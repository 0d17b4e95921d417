//! Messages lost, doubled and out of order, decided by a seed; frames stay whole.

use bytes::Bytes;

use crate::nats_frames::Frame;
use crate::traffic::Seeded;

/// How often something happens to a message, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Odds {
    /// It is lost.
    pub(crate) dropped: usize,
    /// It comes twice.
    pub(crate) doubled: usize,
    /// It comes after others that were sent later.
    pub(crate) delayed: usize,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) messages: u64,
    pub(crate) dropped: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
}

/// One connection's way of mistreating messages.
#[derive(Debug)]
pub(crate) struct Disorder {
    seeded: Seeded,
    /// Messages that wait, with how many frames have to pass them.
    held: Vec<(usize, Bytes)>,
    tally: Tally,
}

/// Frames that pass a message held back, at most.
const PASSED_MAX: usize = 6;
/// Messages held back at a time.
const HELD_MAX: usize = 64;

impl Disorder {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            seeded: Seeded::new(seed),
            held: Vec::new(),
            tally: Tally { messages: 0, dropped: 0, doubled: 0, delayed: 0 },
        }
    }

    /// Takes a frame and appends what is to be sent now.
    pub(crate) fn pass(&mut self, frame: Frame, odds: Odds, out: &mut Vec<Bytes>) {
        match frame {
            Frame::Control(bytes) => out.push(bytes),
            Frame::Message(bytes) => self.mistreat(&bytes, odds, out),
        }
        self.held.retain_mut(|(passing, bytes)| {
            *passing = passing.saturating_sub(1);
            if *passing == 0 {
                out.push(bytes.clone());
            }
            *passing > 0
        });
    }

    fn mistreat(&mut self, bytes: &Bytes, odds: Odds, out: &mut Vec<Bytes>) {
        self.tally.messages += 1;
        let mut happens = |percent: usize| self.seeded.below(100) < percent;
        if happens(odds.dropped) {
            self.tally.dropped += 1;
            return;
        }
        let doubled = happens(odds.doubled);
        self.tally.doubled += u64::from(doubled);
        for _ in 0..=usize::from(doubled) {
            if self.held.len() < HELD_MAX && self.seeded.below(100) < odds.delayed {
                self.tally.delayed += 1;
                // The frame itself counts as one that passes.
                self.held.push((2 + self.seeded.below(PASSED_MAX), bytes.clone()));
            } else {
                out.push(bytes.clone());
            }
        }
    }

    /// Appends what was held back: nothing else has come for a while.
    pub(crate) fn release(&mut self, out: &mut Vec<Bytes>) {
        out.extend(self.held.drain(..).map(|(_, bytes)| bytes));
    }

    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }
}

#[test]
fn nothing_is_lost_or_doubled_but_what_is_counted() {
    let odds = Odds { dropped: 20, doubled: 20, delayed: 20 };
    let mut disorder = Disorder::new(7);
    let mut sent: Vec<Bytes> = Vec::new();
    for number in 0..5000_u32 {
        let frame = if number % 50 == 0 { Frame::Control } else { Frame::Message };
        disorder.pass(frame(Bytes::from(number.to_be_bytes().to_vec())), odds, &mut sent);
    }
    disorder.release(&mut sent);
    let tally = disorder.tally();
    assert_eq!(tally.messages, 4900);
    assert_eq!(sent.len() as u64, 5000 - tally.dropped + tally.doubled);
    for happened in [tally.dropped, tally.doubled, tally.delayed] {
        assert!((600..1300).contains(&happened), "{tally:?}");
    }
    assert!(!sent.is_sorted(), "nothing is out of order");
    let controls: Vec<_> =
        sent.iter().filter(|it| u32::from_be_bytes(it[..].try_into().unwrap()) % 50 == 0).collect();
    assert_eq!(controls.len(), 100);
    assert!(controls.is_sorted());
}

#[test]
fn with_no_odds_everything_passes_in_order() {
    let mut disorder = Disorder::new(7);
    let mut sent = Vec::new();
    for number in 0..1000_u32 {
        let frame = Frame::Message(Bytes::from(number.to_be_bytes().to_vec()));
        disorder.pass(frame, Odds { dropped: 0, doubled: 0, delayed: 0 }, &mut sent);
    }
    assert!(sent.len() == 1000 && sent.is_sorted());
}
