//! Deltas and beats: what travels on a holder's subject.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{ModelName, Rank, WorkerId};
use membership::{Beat, Delta};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::{ChangeForm, IncarnationForm};

/// A message on a holder's subject.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A step.
    Delta(Delta),
    /// A heartbeat.
    Beat(Beat),
}

#[derive(Serialize, Deserialize)]
enum UpdateForm<'a> {
    Delta(DeltaForm<'a>),
    Beat(BeatForm<'a>),
}

impl Form for UpdateForm<'_> {
    type Previous = Self;
}

/// One step; also part of a range.
#[derive(Serialize, Deserialize)]
pub(crate) struct DeltaForm<'a> {
    scheme: Cow<'a, str>,
    model: Cow<'a, str>,
    worker: Cow<'a, str>,
    rank: u16,
    incarnation: IncarnationForm,
    seq: u64,
    changes: Vec<ChangeForm<'a>>,
}

#[derive(Serialize, Deserialize)]
struct BeatForm<'a> {
    scheme: Cow<'a, str>,
    model: Cow<'a, str>,
    worker: Cow<'a, str>,
    rank: u16,
    incarnation: IncarnationForm,
    seq: u64,
    blocks: u64,
    digest: u64,
    running: u32,
    waiting: u32,
    kv_usage: f32,
    engine_healthy: bool,
    coverage: f32,
}

impl<'a> From<&'a Delta> for DeltaForm<'a> {
    fn from(delta: &'a Delta) -> Self {
        Self {
            scheme: Cow::Borrowed(&delta.scheme),
            model: Cow::Borrowed(delta.model.as_str()),
            worker: Cow::Borrowed(delta.worker.as_str()),
            rank: delta.rank.0,
            incarnation: delta.incarnation.into(),
            seq: delta.seq,
            changes: delta.changes.iter().map(ChangeForm::from).collect(),
        }
    }
}

impl DeltaForm<'_> {
    pub(crate) fn check(self) -> Result<Delta, Error> {
        Ok(Delta {
            scheme: self.scheme.into_owned(),
            model: ModelName::new(&self.model),
            worker: WorkerId::new(&self.worker),
            rank: Rank(self.rank),
            incarnation: self.incarnation.into(),
            seq: self.seq,
            changes: self.changes.into_iter().map(ChangeForm::check).collect::<Result<_, _>>()?,
        })
    }
}

impl<'a> From<&'a Beat> for BeatForm<'a> {
    fn from(beat: &'a Beat) -> Self {
        Self {
            scheme: Cow::Borrowed(&beat.scheme),
            model: Cow::Borrowed(beat.model.as_str()),
            worker: Cow::Borrowed(beat.worker.as_str()),
            rank: beat.rank.0,
            incarnation: beat.incarnation.into(),
            seq: beat.seq,
            blocks: beat.blocks,
            digest: beat.digest,
            running: beat.running,
            waiting: beat.waiting,
            kv_usage: beat.kv_usage,
            engine_healthy: beat.engine_healthy,
            coverage: beat.coverage,
        }
    }
}

impl BeatForm<'_> {
    fn check(self) -> Result<Beat, Error> {
        let share = |value: f32, field| {
            if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(Error::Invalid { field }) }
        };
        Ok(Beat {
            scheme: self.scheme.into_owned(),
            model: ModelName::new(&self.model),
            worker: WorkerId::new(&self.worker),
            rank: Rank(self.rank),
            incarnation: self.incarnation.into(),
            seq: self.seq,
            blocks: self.blocks,
            digest: self.digest,
            running: self.running,
            waiting: self.waiting,
            kv_usage: share(self.kv_usage, "kv_usage")?,
            engine_healthy: self.engine_healthy,
            coverage: share(self.coverage, "coverage")?,
        })
    }
}

/// Encodes a delta.
///
/// # Errors
/// `TooLarge` or `Encode` past 1 MiB: the agent splits the step, a sequence number each.
pub fn encode_delta(delta: &Delta) -> Result<Bytes, Error> {
    codec::encode(&UpdateForm::Delta(delta.into()))
}

/// Encodes a beat.
///
/// # Errors
/// As for `encode_delta`, where names are absurdly long.
pub fn encode_beat(beat: &Beat) -> Result<Bytes, Error> {
    codec::encode(&UpdateForm::Beat(beat.into()))
}

/// Decodes a message of a holder's subject.
///
/// # Errors
/// The message is dropped and counted; what it said is repaired like a loss.
pub fn decode(message: &[u8]) -> Result<Update, Error> {
    match codec::decode(message)? {
        UpdateForm::Delta(form) => form.check().map(Update::Delta),
        UpdateForm::Beat(form) => form.check().map(Update::Beat),
    }
}
