//! Answers to replicas.

use std::time::Duration;

use bytes::Bytes;
use identity::{Incarnation, KeySetDigest};
use membership::Run;
use wire::Error;
use wire::sync::{Refusal, Request, Response, Snapshot};

use super::copies::Copies;
use super::session::Session;

/// Most keys in buckets that are answered; more do not fit into one answer in any case.
const BUCKET_KEYS_MAX: u64 = 32_768;

/// How a question is answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// With these bytes.
    Now(Bytes),
    /// Once the set has been copied.
    AfterCopy,
}

/// Answers a question, or says that it takes a copy.
pub(super) fn answer(
    request: &Request,
    session: &Session,
    copies: &mut Copies,
    now: Duration,
) -> Result<Answer, Error> {
    if !session.is_caught_up() {
        return refuse(Refusal::Busy);
    }
    match request {
        Request::Succeed { .. } => refuse(Refusal::Incarnation { present: session.incarnation() }),
        Request::Digest => Response::Digest {
            incarnation: session.incarnation(),
            seq: session.seq(),
            digest: session.digest().clone(),
        }
        .encode()
        .map(Answer::Now),
        Request::Range { incarnation, from } => match stale(session, *incarnation) {
            Some(refusal) => refuse(refusal),
            None => range(session, *from),
        },
        Request::Buckets { incarnation, digest } => match stale(session, *incarnation) {
            Some(refusal) => refuse(refusal),
            None => buckets(session, digest),
        },
        Request::Open { incarnation } => match (stale(session, *incarnation), copies.young(now)) {
            (Some(refusal), _) => refuse(refusal),
            (None, Some(copy)) if covers(session, copy) => {
                Response::Opened(copy.clone()).encode().map(Answer::Now)
            }
            (None, _) => Ok(Answer::AfterCopy),
        },
        Request::Chunk { snapshot, index } => match copies.chunk(*snapshot, *index, now) {
            Some(chunk) => Ok(Answer::Now(chunk)),
            None => refuse(Refusal::NoSnapshot),
        },
    }
}

/// Encodes a refusal.
pub(super) fn refuse(refusal: Refusal) -> Result<Answer, Error> {
    Response::Refused(refusal).encode().map(Answer::Now)
}

fn stale(session: &Session, incarnation: Incarnation) -> Option<Refusal> {
    let present = session.incarnation();
    (present != incarnation).then_some(Refusal::Incarnation { present })
}

/// Tells whether a replica that has a copy can catch up from the ring.
fn covers(session: &Session, copy: &Snapshot) -> bool {
    copy.seq == session.seq() || session.ring().oldest().is_some_and(|oldest| oldest <= copy.seq + 1)
}

fn range(session: &Session, from: u64) -> Result<Answer, Error> {
    match session.ring().from(from) {
        Some(deltas) => Response::range(deltas.map(AsRef::as_ref)).map(Answer::Now),
        None => refuse(Refusal::Forgotten),
    }
}

fn buckets(session: &Session, theirs: &KeySetDigest) -> Result<Answer, Error> {
    let ours = session.digest();
    let differing: Vec<u8> = ours.differing(theirs).collect();
    let keys: u64 = differing
        .iter()
        .filter_map(|bucket| ours.buckets().get(usize::from(*bucket)))
        .map(|bucket| u64::from(bucket.count))
        .sum();
    if keys > BUCKET_KEYS_MAX {
        return refuse(Refusal::TooLarge);
    }
    let runs: Vec<Run> = session.translator().runs_in(&differing);
    Response::buckets(session.seq(), ours, differing, runs).map(Answer::Now)
}
