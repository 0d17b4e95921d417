//! What a replica does when the agent that it hears speaks of an earlier life than it knows of.
#![expect(clippy::panic, reason = "test code outside of test functions")]

use std::time::Duration;

use identity::{Incarnation, ModelName, Rank, SCHEME, WorkerId};
use membership::Beat;
use membership::replica::{Answer, Ask, Effect, Event, Policy, Replica};

const EARLIER: Incarnation = Incarnation { started_ms: 1000, nonce: 1 };
const LATER: Incarnation = Incarnation { started_ms: 1000, nonce: 2 };

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn beat(incarnation: Incarnation) -> Event {
    Event::Beat(Beat {
        scheme: SCHEME.to_owned(),
        model: ModelName::new("m"),
        worker: WorkerId::new("w"),
        rank: Rank(0),
        incarnation,
        seq: 0,
        blocks: 0,
        digest: 0,
        running: 0,
        waiting: 0,
        kv_usage: 0.0,
        engine_healthy: true,
        coverage: 1.0,
    })
}

fn succession(effects: &[Effect]) -> Option<u32> {
    match effects {
        [] => None,
        [Effect::Ask { ticket, ask: Ask::Succeed { silent } }] if *silent == LATER => Some(*ticket),
        other => panic!("unexpected: {other:?}"),
    }
}

/// A replica that followed the later life until its agent fell silent at 1 s.
fn replica() -> Replica {
    let mut replica = Replica::new(Policy::default(), 7);
    replica.step(beat(EARLIER), s(0));
    replica.step(beat(LATER), s(1));
    replica
}

#[test]
fn an_earlier_life_is_called_to_succeed_a_later_one_that_is_silent() {
    let mut replica = replica();
    for now in 2..6 {
        assert_eq!(
            succession(&replica.step(beat(EARLIER), s(now))),
            None,
            "{now} s: the later one may speak"
        );
    }
    let Some(ticket) = succession(&replica.step(beat(EARLIER), s(6))) else { panic!("silent for 5 s") };
    assert!(replica.awaits(ticket));
    assert_eq!(succession(&replica.step(beat(EARLIER), s(7))), None, "one call at a time");
    assert_eq!(replica.status().incarnation, Some(LATER), "no life returns");
    replica.step(Event::Answered { ticket, answer: Answer::Failed }, s(7));
    assert!(succession(&replica.step(beat(EARLIER), s(8))).is_some(), "and again if nobody heard");
}

#[test]
fn who_succeeds_is_followed() {
    let mut replica = replica();
    let ticket = succession(&replica.step(beat(EARLIER), s(6)));
    let successor = Incarnation { nonce: 3, ..LATER };
    replica.step(beat(successor), s(7));
    assert_eq!(replica.status().incarnation, Some(successor));
    assert!(ticket.is_some_and(|ticket| !replica.awaits(ticket)));
    assert_eq!(succession(&replica.step(beat(EARLIER), s(8))), None);
}
