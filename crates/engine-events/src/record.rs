//! What an agent keeps of one feed across its restarts.
//!
//! ```text
//! "slck" ‖ version u8 ‖ MessagePack ‖ xxh3-64 of everything before, LE
//! ```

use identity::Incarnation;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::cursor::Mark;
use crate::translator::Checkpoint;

const MAGIC: [u8; 4] = *b"slck";
/// A release reads its own version only and starts afresh on others.
const VERSION: u8 = 1;

/// Why a record cannot be used; start without it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not a record, or one of another release.
    #[error("not a feed record of version {VERSION}")]
    Version,
    /// Truncated or damaged.
    #[error("feed record is damaged")]
    Damaged,
    /// Whole, and yet not readable.
    #[error("feed record cannot be read")]
    Malformed(#[source] rmp_serde::decode::Error),
}

/// A feed's state right after one of its batches.
#[derive(Debug)]
pub struct Record {
    /// The engine life that it belongs to.
    pub incarnation: Incarnation,
    /// When that engine said it had started, in milliseconds since the Unix epoch.
    pub engine_started_ms: Option<u64>,
    /// Sequence of the last delta.
    pub seq: u64,
    /// The last batch that is contained.
    pub mark: Option<Mark>,
    /// The translator's state.
    pub state: Checkpoint,
}

#[derive(Serialize, Deserialize)]
struct Form<S> {
    started_ms: u64,
    nonce: u64,
    engine_started_ms: Option<u64>,
    seq: u64,
    mark: Option<Mark>,
    state: S,
}

impl Record {
    /// Encodes the record; takes time in proportion to the number of blocks.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let form = Form {
            started_ms: self.incarnation.started_ms,
            nonce: self.incarnation.nonce,
            engine_started_ms: self.engine_started_ms,
            seq: self.seq,
            mark: self.mark,
            state: &self.state,
        };
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        // Plain data into memory cannot fail; if it did, the record would be refused when it is read.
        if rmp_serde::encode::write(&mut bytes, &form).is_err() {
            bytes.clear();
        }
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Start without it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let Some(([VERSION], rest)) = bytes.strip_prefix(&MAGIC).and_then(|rest| rest.split_at_checked(1))
        else {
            return Err(RecordError::Version);
        };
        let (body, checksum) = rest.split_last_chunk::<8>().ok_or(RecordError::Damaged)?;
        let covered = bytes.len().checked_sub(checksum.len()).and_then(|length| bytes.get(..length));
        if covered.map(xxh3_64) != Some(u64::from_le_bytes(*checksum)) {
            return Err(RecordError::Damaged);
        }
        let form: Form<Checkpoint> = rmp_serde::from_slice(body).map_err(RecordError::Malformed)?;
        Ok(Self {
            incarnation: Incarnation { started_ms: form.started_ms, nonce: form.nonce },
            engine_started_ms: form.engine_started_ms,
            seq: form.seq,
            mark: form.mark,
            state: form.state,
        })
    }
}
