//! A frontend's questions for a model's files, and an agent's answers.
//!
//! ```text
//! List                    → Listing{files: [(name, bytes, digest)]}
//! Read{digest, offset}    → Chunk{bytes}          repeated until the file's end
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};

/// Largest chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 512 << 10;

/// A blake3 digest of a file's bytes.
pub type Digest = [u8; 32];

/// A question about the files of an agent's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which files are there?
    List,
    /// What stands in a file from an offset on?
    Read {
        /// The file's digest.
        digest: Digest,
        /// Bytes before the chunk that is wanted.
        offset: u64,
    },
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The files; none where the agent has no model directory.
    Listing {
        /// In no order.
        files: Vec<File>,
    },
    /// Part of a file; empty at its end.
    Chunk {
        /// The bytes from the offset on, as many as fit.
        bytes: Vec<u8>,
    },
    /// There is no such file, or the offset lies behind its end.
    NoFile,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name within the model directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What its content must have.
    pub digest: Digest,
}

#[derive(Serialize, Deserialize)]
enum RequestForm {
    List,
    Read { digest: Digest, offset: u64 },
}

#[derive(Serialize, Deserialize)]
enum ResponseForm {
    Listing { files: Vec<(String, u64, Digest)> },
    Chunk { bytes: Vec<u8> },
    NoFile,
}

impl Form for RequestForm {
    type Previous = Self;
}

impl Form for ResponseForm {
    type Previous = Self;
}

impl Request {
    /// Encodes the question.
    ///
    /// # Errors
    /// None occurs: questions are small.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match *self {
            Self::List => RequestForm::List,
            Self::Read { digest, offset } => RequestForm::Read { digest, offset },
        })
    }

    /// Decodes a question.
    ///
    /// # Errors
    /// The agent does not answer; the frontend's deadline passes.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            RequestForm::List => Self::List,
            RequestForm::Read { digest, offset } => Self::Read { digest, offset },
        })
    }
}

impl Response {
    /// Encodes the answer.
    ///
    /// # Errors
    /// `TooLarge` where a chunk is longer than [`CHUNK_BYTES_MAX`] by far.
    pub fn encode(self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Listing { files } => ResponseForm::Listing {
                files: files.into_iter().map(|file| (file.name, file.bytes, file.digest)).collect(),
            },
            Self::Chunk { bytes } => ResponseForm::Chunk { bytes },
            Self::NoFile => ResponseForm::NoFile,
        })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Counts as a failed request.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            ResponseForm::Listing { files } => Self::Listing {
                files: files.into_iter().map(|(name, bytes, digest)| File { name, bytes, digest }).collect(),
            },
            ResponseForm::Chunk { bytes } => Self::Chunk { bytes },
            ResponseForm::NoFile => Self::NoFile,
        })
    }
}
