//! Load gauges: what a frontend has in flight, in absolute numbers.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{Holder, Incarnation, ModelName, Rank, WorkerId};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::IncarnationForm;

/// Part or all of a frontend's vector of gauges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// The frontend's name, unique in the namespace.
    pub frontend: String,
    /// Its life; a later one voids all gauges of the earlier.
    pub incarnation: Incarnation,
    /// Whether holders without an entry have no load; else they are unchanged.
    pub whole: bool,
    /// One entry per holder.
    pub entries: Vec<Gauge>,
}

/// A frontend's load on one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The model.
    pub model: ModelName,
    /// The holder.
    pub holder: Holder,
    /// Grows with every change of the entry; receivers keep the newest.
    pub version: u64,
    /// Requests in flight.
    pub active_requests: u32,
    /// Prompt tokens not yet prefilled.
    pub prefill_tokens: u64,
    /// Media tokens not yet encoded.
    pub media_tokens: u64,
    /// Blocks of sequences that decode.
    pub decode_blocks: u64,
}

#[derive(Serialize, Deserialize)]
struct GaugesForm<'a> {
    frontend: Cow<'a, str>,
    incarnation: IncarnationForm,
    whole: bool,
    entries: Vec<GaugeForm<'a>>,
}

#[derive(Serialize, Deserialize)]
struct GaugeForm<'a> {
    model: Cow<'a, str>,
    worker: Cow<'a, str>,
    rank: u16,
    version: u64,
    active_requests: u32,
    prefill_tokens: u64,
    media_tokens: u64,
    decode_blocks: u64,
}

impl Form for GaugesForm<'_> {
    type Previous = Self;
}

impl Gauges {
    /// Encodes the gauges.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` past 1 MiB, some 9,000 holders: the frontend sends several messages that are not whole.
    pub fn encode(&self) -> Result<Bytes, Error> {
        let entries = self.entries.iter().map(|entry| GaugeForm {
            model: Cow::Borrowed(entry.model.as_str()),
            worker: Cow::Borrowed(entry.holder.worker.as_str()),
            rank: entry.holder.rank.0,
            version: entry.version,
            active_requests: entry.active_requests,
            prefill_tokens: entry.prefill_tokens,
            media_tokens: entry.media_tokens,
            decode_blocks: entry.decode_blocks,
        });
        codec::encode(&GaugesForm {
            frontend: Cow::Borrowed(&self.frontend),
            incarnation: self.incarnation.into(),
            whole: self.whole,
            entries: entries.collect(),
        })
    }

    /// Decodes gauges.
    ///
    /// # Errors
    /// The message is dropped and counted; the next whole vector replaces it.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        let form: GaugesForm<'_> = codec::decode(message)?;
        let entries = form.entries.into_iter().map(|entry| Gauge {
            model: ModelName::new(&entry.model),
            holder: Holder { worker: WorkerId::new(&entry.worker), rank: Rank(entry.rank) },
            version: entry.version,
            active_requests: entry.active_requests,
            prefill_tokens: entry.prefill_tokens,
            media_tokens: entry.media_tokens,
            decode_blocks: entry.decode_blocks,
        });
        Ok(Self {
            frontend: form.frontend.into_owned(),
            incarnation: form.incarnation.into(),
            whole: form.whole,
            entries: entries.collect(),
        })
    }
}
