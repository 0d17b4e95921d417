//! A replica's questions to an agent, and the answers.
//!
//! ```text
//! gap          Range{from}          → Range{deltas}            repeated until caught up; Forgotten → Buckets
//! divergence   Buckets{own digest}  → Buckets{S, digest, runs} at the agent's present S; TooLarge → Open
//! joining      Open                 → Opened{S, digest, n}     then Chunk 0 … n-1 → Chunk{runs}
//! succession   Succeed{silent life} → Incarnation{a later one} beats of it follow; also asked by the agent that falls silent
//! ```

use bytes::Bytes;
use identity::{Incarnation, KeySetDigest};
use membership::{Delta, Run};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::{DigestForm, IncarnationForm, RunForm};
use crate::kv::DeltaForm;

/// Largest answer that carries deltas or runs, in bytes.
pub const CHUNK_BYTES_MAX: usize = 512 << 10;
/// What surrounds the content of an answer at most: version, tags, a digest, bucket numbers, lengths.
const OVERHEAD_BYTES_MAX: usize = 4 << 10;
/// What a delta's answer may take for its content.
const CONTENT_BYTES_MAX: usize = CHUNK_BYTES_MAX - OVERHEAD_BYTES_MAX;
/// A run without its keys: optional parent, length.
const RUN_BYTES: usize = 1 + 8 + 8;

/// A question about one holder, sent on its sync subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The deltas from a sequence on.
    Range {
        /// The life they belong to.
        incarnation: Incarnation,
        /// The first sequence missed.
        from: u64,
    },
    /// The present sequence and digest.
    Digest,
    /// The keys of the buckets in which the agent's digest differs from this one.
    Buckets {
        /// The life that is compared.
        incarnation: Incarnation,
        /// The replica's digest.
        digest: KeySetDigest,
    },
    /// An immutable copy of the whole set, to be fetched in chunks within 10 s.
    Open {
        /// The life that is wanted.
        incarnation: Incarnation,
    },
    /// A chunk of such a copy.
    Chunk {
        /// The copy.
        snapshot: u64,
        /// Which chunk, from 0.
        index: u32,
    },
    /// To go on as a later life than this, of which no agent speaks any more or will in a moment. Only an agent that now
    /// speaks of a later one answers.
    Succeed {
        /// The life that is over.
        silent: Incarnation,
    },
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// Consecutive deltas from the sequence asked for; at least one, as many as fit.
    Range {
        /// In order.
        deltas: Vec<Delta>,
    },
    /// Where the agent stands.
    Digest {
        /// The present life.
        incarnation: Incarnation,
        /// Sequence of the last delta.
        seq: u64,
        /// The set's digest right after it.
        digest: KeySetDigest,
    },
    /// The differing buckets as they are right after `seq`.
    Buckets {
        /// Sequence of the last delta they contain.
        seq: u64,
        /// The whole set's digest right after it.
        digest: KeySetDigest,
        /// Which buckets are replaced.
        buckets: Vec<u8>,
        /// All keys in these buckets, parents first.
        runs: Vec<Run>,
    },
    /// A copy is ready.
    Opened(Snapshot),
    /// Part of a copy; parents come before children, also across chunks.
    Chunk {
        /// Its runs.
        runs: Vec<Run>,
    },
    /// The agent cannot answer.
    Refused(Refusal),
}

/// What a copy of a holder's set contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Names it in requests for chunks.
    pub id: u64,
    /// Sequence of the last delta it contains.
    pub seq: u64,
    /// The set's digest right after it.
    pub digest: KeySetDigest,
    /// Number of keys.
    pub blocks: u64,
    /// Number of chunks.
    pub chunks: u32,
}

/// Why an agent cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The engine lives another life.
    Incarnation {
        /// The present one.
        present: Incarnation,
    },
    /// The range begins before the ring, or after the last delta.
    Forgotten,
    /// The differing buckets do not fit into one answer.
    TooLarge,
    /// The copy has expired, or has no such chunk.
    NoSnapshot,
    /// The agent does not know the engine's state yet, or serves too many copies.
    Busy,
}

#[derive(Serialize, Deserialize)]
enum RequestForm {
    Range { incarnation: IncarnationForm, from: u64 },
    Digest,
    Buckets { incarnation: IncarnationForm, digest: DigestForm },
    Open { incarnation: IncarnationForm },
    Chunk { snapshot: u64, index: u32 },
    Succeed { silent: IncarnationForm },
}

impl Form for RequestForm {
    type Previous = Self;
}

#[derive(Serialize, Deserialize)]
enum ResponseForm<'a> {
    Range { deltas: Vec<DeltaForm<'a>> },
    Digest { incarnation: IncarnationForm, seq: u64, digest: DigestForm },
    Buckets { seq: u64, digest: DigestForm, buckets: Vec<u8>, runs: Vec<RunForm<'a>> },
    Opened { id: u64, seq: u64, digest: DigestForm, blocks: u64, chunks: u32 },
    Chunk { runs: Vec<RunForm<'a>> },
    Refused(RefusalForm),
}

impl Form for ResponseForm<'_> {
    type Previous = Self;
}

#[derive(Serialize, Deserialize)]
enum RefusalForm {
    Incarnation(IncarnationForm),
    Forgotten,
    TooLarge,
    NoSnapshot,
    Busy,
}

impl Request {
    /// Returns what is asked, in a word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Range { .. } => "range",
            Self::Digest => "digest",
            Self::Buckets { .. } => "buckets",
            Self::Open { .. } => "open",
            Self::Chunk { .. } => "chunk",
            Self::Succeed { .. } => "succeed",
        }
    }

    /// Returns the life that is asked about; none where the present one is, whichever it is.
    #[must_use]
    pub const fn life(&self) -> Option<Incarnation> {
        match self {
            Self::Range { incarnation, .. }
            | Self::Buckets { incarnation, .. }
            | Self::Open { incarnation } => Some(*incarnation),
            Self::Digest | Self::Chunk { .. } | Self::Succeed { .. } => None,
        }
    }

    /// Encodes the question.
    ///
    /// # Errors
    /// None in practice: questions are small.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Range { incarnation, from } => {
                RequestForm::Range { incarnation: (*incarnation).into(), from: *from }
            }
            Self::Digest => RequestForm::Digest,
            Self::Buckets { incarnation, digest } => {
                RequestForm::Buckets { incarnation: (*incarnation).into(), digest: digest.into() }
            }
            Self::Open { incarnation } => RequestForm::Open { incarnation: (*incarnation).into() },
            Self::Chunk { snapshot, index } => RequestForm::Chunk { snapshot: *snapshot, index: *index },
            Self::Succeed { silent } => RequestForm::Succeed { silent: (*silent).into() },
        })
    }

    /// Decodes a question.
    ///
    /// # Errors
    /// The agent does not answer; the replica's deadline passes.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            RequestForm::Range { incarnation, from } => Self::Range { incarnation: incarnation.into(), from },
            RequestForm::Digest => Self::Digest,
            RequestForm::Buckets { incarnation, digest } => {
                Self::Buckets { incarnation: incarnation.into(), digest: digest.check()? }
            }
            RequestForm::Open { incarnation } => Self::Open { incarnation: incarnation.into() },
            RequestForm::Chunk { snapshot, index } => Self::Chunk { snapshot, index },
            RequestForm::Succeed { silent } => Self::Succeed { silent: silent.into() },
        })
    }
}

impl Response {
    /// Encodes the answer.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` where it exceeds 1 MiB; `range`, `chunks` and `buckets` keep answers below.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Range { deltas } => {
                ResponseForm::Range { deltas: deltas.iter().map(DeltaForm::from).collect() }
            }
            Self::Digest { incarnation, seq, digest } => {
                ResponseForm::Digest { incarnation: (*incarnation).into(), seq: *seq, digest: digest.into() }
            }
            Self::Buckets { seq, digest, buckets, runs } => ResponseForm::Buckets {
                seq: *seq,
                digest: digest.into(),
                buckets: buckets.clone(),
                runs: runs.iter().map(RunForm::from).collect(),
            },
            Self::Opened(opened) => ResponseForm::Opened {
                id: opened.id,
                seq: opened.seq,
                digest: (&opened.digest).into(),
                blocks: opened.blocks,
                chunks: opened.chunks,
            },
            Self::Chunk { runs } => ResponseForm::Chunk { runs: runs.iter().map(RunForm::from).collect() },
            Self::Refused(refusal) => ResponseForm::Refused(match refusal {
                Refusal::Incarnation { present } => RefusalForm::Incarnation((*present).into()),
                Refusal::Forgotten => RefusalForm::Forgotten,
                Refusal::TooLarge => RefusalForm::TooLarge,
                Refusal::NoSnapshot => RefusalForm::NoSnapshot,
                Refusal::Busy => RefusalForm::Busy,
            }),
        })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Counts as a failed request.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            ResponseForm::Range { deltas } => {
                Self::Range { deltas: deltas.into_iter().map(DeltaForm::check).collect::<Result<_, _>>()? }
            }
            ResponseForm::Digest { incarnation, seq, digest } => {
                Self::Digest { incarnation: incarnation.into(), seq, digest: digest.check()? }
            }
            ResponseForm::Buckets { seq, digest, buckets, runs } => {
                Self::Buckets { seq, digest: digest.check()?, buckets, runs: RunForm::check_all(runs)? }
            }
            ResponseForm::Opened { id, seq, digest, blocks, chunks } => {
                Self::Opened(Snapshot { id, seq, digest: digest.check()?, blocks, chunks })
            }
            ResponseForm::Chunk { runs } => Self::Chunk { runs: RunForm::check_all(runs)? },
            ResponseForm::Refused(refusal) => Self::Refused(match refusal {
                RefusalForm::Incarnation(present) => Refusal::Incarnation { present: present.into() },
                RefusalForm::Forgotten => Refusal::Forgotten,
                RefusalForm::TooLarge => Refusal::TooLarge,
                RefusalForm::NoSnapshot => Refusal::NoSnapshot,
                RefusalForm::Busy => Refusal::Busy,
            }),
        })
    }

    /// Encodes as many of the deltas as fit into one answer, the first one in any case.
    ///
    /// # Errors
    /// `TooLarge` where the first delta alone exceeds 1 MiB.
    pub fn range<'a>(deltas: impl IntoIterator<Item = &'a Delta>) -> Result<Bytes, Error> {
        let mut room = CONTENT_BYTES_MAX;
        let forms = deltas.into_iter().enumerate().map_while(|(index, delta)| {
            // In memory a delta takes at least what it takes on the wire.
            let bytes =
                delta.bytes() + delta.scheme.len() + delta.model.as_str().len() + delta.worker.as_str().len();
            let fits = index == 0 || bytes <= room;
            room = room.saturating_sub(bytes);
            fits.then(|| DeltaForm::from(delta))
        });
        codec::encode(&ResponseForm::Range { deltas: forms.collect() })
    }

    /// Encodes the differing buckets, or `TooLarge` where they do not fit.
    ///
    /// # Errors
    /// None in practice.
    pub fn buckets(
        seq: u64,
        digest: &KeySetDigest,
        buckets: Vec<u8>,
        runs: impl IntoIterator<Item = Run>,
    ) -> Result<Bytes, Error> {
        let mut room = CONTENT_BYTES_MAX;
        let mut taken = Vec::new();
        for run in runs {
            let bytes = RUN_BYTES + size_of_val(run.keys.as_slice());
            if bytes > room {
                return Self::Refused(Refusal::TooLarge).encode();
            }
            room -= bytes;
            taken.push(run);
        }
        Self::Buckets { seq, digest: digest.clone(), buckets, runs: taken }.encode()
    }

    /// Encodes a whole set as chunk answers of at most 512 KiB, in the order of its runs; long runs are split.
    ///
    /// # Errors
    /// None in practice.
    pub fn chunks(runs: impl IntoIterator<Item = Run>) -> Result<Vec<Bytes>, Error> {
        let mut chunks = Vec::new();
        let (mut chunk, mut room) = (Vec::new(), CONTENT_BYTES_MAX);
        for run in runs {
            let (mut parent, mut rest) = (run.parent, run.keys.as_slice());
            while let Some(last) = rest.last() {
                let fit = room.saturating_sub(RUN_BYTES) / size_of::<u64>();
                if fit == 0 {
                    chunks.push(Self::Chunk { runs: std::mem::take(&mut chunk) }.encode()?);
                    room = CONTENT_BYTES_MAX;
                    continue;
                }
                let (head, tail) = rest.split_at(fit.min(rest.len()));
                room -= RUN_BYTES + size_of_val(head);
                chunk.push(Run { parent, keys: head.to_vec() });
                parent = head.last().or(Some(last)).copied();
                rest = tail;
            }
        }
        if !chunk.is_empty() {
            chunks.push(Self::Chunk { runs: chunk }.encode()?);
        }
        Ok(chunks)
    }
}
