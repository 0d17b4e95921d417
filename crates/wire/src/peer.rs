//! A joining replica's questions to other replicas.
//!
//! ```text
//! to all     Offer{asker}                 → Offered{peer}              of those that are ready and have room; the first counts
//! to one     Open{holder, incarnation}    → sync::Opened{S, digest, n} or Refused; then Chunk 0 … n-1 → sync::Chunk{runs}
//! ```
//!
//! What a replica gives is a claim: who takes it has it proved by the agent's digest.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{Holder, Incarnation, Rank, WorkerId};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::IncarnationForm;

/// A question to other replicas of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Who can give whole sets now? Answered by [`Offered`].
    Offer {
        /// Names who asks, and does not answer itself.
        asker: u64,
    },
    /// A copy of a holder's set, to be fetched in chunks within 10 s. Answered by [`crate::sync::Response`].
    Open {
        /// Whose set.
        holder: Holder,
        /// The life that is wanted.
        incarnation: Incarnation,
    },
    /// A chunk of such a copy. Answered by [`crate::sync::Response`].
    Chunk {
        /// The copy.
        snapshot: u64,
        /// Which chunk, from 0.
        index: u32,
    },
}

/// A replica's word that it gives whole sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Names it, and its subject with it.
    pub peer: u64,
}

#[derive(Serialize, Deserialize)]
enum QuestionForm<'a> {
    Offer { asker: u64 },
    Open { worker: Cow<'a, str>, rank: u16, incarnation: IncarnationForm },
    Chunk { snapshot: u64, index: u32 },
}

impl Form for QuestionForm<'_> {
    type Previous = Self;
}

#[derive(Serialize, Deserialize)]
struct OfferedForm {
    peer: u64,
}

impl Form for OfferedForm {
    type Previous = Self;
}

impl Question {
    /// Encodes the question.
    ///
    /// # Errors
    /// None in practice: questions are small.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Offer { asker } => QuestionForm::Offer { asker: *asker },
            Self::Open { holder, incarnation } => QuestionForm::Open {
                worker: Cow::Borrowed(holder.worker.as_str()),
                rank: holder.rank.0,
                incarnation: (*incarnation).into(),
            },
            Self::Chunk { snapshot, index } => QuestionForm::Chunk { snapshot: *snapshot, index: *index },
        })
    }

    /// Decodes a question.
    ///
    /// # Errors
    /// It is not answered; the asker goes to the agents.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            QuestionForm::Offer { asker } => Self::Offer { asker },
            QuestionForm::Open { worker, rank, incarnation } => Self::Open {
                holder: Holder { worker: WorkerId::new(&worker), rank: Rank(rank) },
                incarnation: incarnation.into(),
            },
            QuestionForm::Chunk { snapshot, index } => Self::Chunk { snapshot, index },
        })
    }
}

impl Offered {
    /// Encodes the answer.
    ///
    /// # Errors
    /// None in practice.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&OfferedForm { peer: self.peer })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Counts as none.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        codec::decode(message).map(|OfferedForm { peer }| Self { peer })
    }
}
