//! Batches of events as vLLM puts them on the wire, in MessagePack.
//!
//! ```text
//! batch = [timestamp f64, [event…], data-parallel rank]
//! map   (from 0.24)   {"type": "BlockStored", "block_hashes": […], "parent_block_hash": …, …}, defaults left out
//! array (up to 0.23)  ["BlockStored", block_hashes, parent, tokens, size, lora id, medium, lora name, extra keys,
//!                      group, kind, window], nulls at the end included
//! ```

use serde::{Serialize, Serializer};

use crate::block_hash::{BlockHash, ExtraKey};
use crate::kv_event::{KvEvent, Stored};

/// How events are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EventFormat {
    /// Maps with a `type`, and replayed batches with a topic frame: vLLM 0.26 and later.
    #[default]
    Map,
    /// Positional arrays, and replayed batches without a topic frame: vLLM 0.23.
    Array,
}

/// How events spell block hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum HashForm {
    /// The digest's last 8 bytes as an unsigned number: vLLM's default.
    #[default]
    Int,
    /// The whole digest as binary: vLLM with `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    Bytes,
}

/// Everything that a rank's batches have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCodec {
    /// Layout of an event.
    pub(crate) format: EventFormat,
    /// Form of a hash.
    pub(crate) hashes: HashForm,
    /// Tokens of a block.
    pub(crate) block_size: u32,
    /// The data-parallel rank that speaks.
    pub(crate) rank: u32,
}

const MEDIUM: &str = "GPU";
const GROUP: u32 = 0;
const KIND: &str = "full_attention";

impl EventCodec {
    /// Encodes one batch; `at` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// Fails only on what MessagePack cannot hold; nothing to be done but report it.
    pub(crate) fn encode(&self, at: f64, events: &[KvEvent]) -> Result<Vec<u8>, rmp_serde::encode::Error> {
        match self.format {
            EventFormat::Map => {
                let events: Vec<_> = events.iter().map(|event| self.map(event)).collect();
                rmp_serde::to_vec_named(&(at, events, self.rank))
            }
            EventFormat::Array => {
                let events: Vec<_> = events.iter().map(|event| self.array(event)).collect();
                rmp_serde::to_vec(&(at, events, self.rank))
            }
        }
    }

    fn map<'a>(&self, event: &'a KvEvent) -> MapEvent<'a> {
        match event {
            KvEvent::Stored(stored) => MapEvent::BlockStored {
                block_hashes: self.hashes(&stored.hashes),
                parent_block_hash: self.parent(stored),
                token_ids: &stored.tokens,
                block_size: self.block_size,
                lora_id: (),
                medium: MEDIUM,
                lora_name: (),
                extra_keys: extra_keys(stored),
                group_idx: GROUP,
                kv_cache_spec_kind: KIND,
                session_id: stored.session_id.as_deref(),
            },
            KvEvent::Removed(hash) => {
                MapEvent::BlockRemoved { block_hashes: [self.hash(hash)], medium: MEDIUM, group_idx: GROUP }
            }
            KvEvent::Cleared => MapEvent::AllBlocksCleared {},
        }
    }

    fn array<'a>(&self, event: &'a KvEvent) -> ArrayEvent<'a> {
        match event {
            KvEvent::Stored(stored) => ArrayEvent::Stored((
                "BlockStored",
                self.hashes(&stored.hashes),
                self.parent(stored),
                &stored.tokens,
                self.block_size,
                None,
                MEDIUM,
                None,
                extra_keys(stored),
                GROUP,
                KIND,
                None,
            )),
            KvEvent::Removed(hash) => ArrayEvent::Removed(("BlockRemoved", [self.hash(hash)], MEDIUM, GROUP)),
            KvEvent::Cleared => ArrayEvent::Cleared(("AllBlocksCleared",)),
        }
    }

    fn hash(&self, hash: &BlockHash) -> WireHash {
        match self.hashes {
            HashForm::Int => WireHash::Int(hash.low_u64()),
            HashForm::Bytes => WireHash::Bytes(*hash.bytes()),
        }
    }

    fn hashes(&self, hashes: &[BlockHash]) -> Vec<WireHash> {
        hashes.iter().map(|hash| self.hash(hash)).collect()
    }

    fn parent(&self, stored: &Stored) -> Option<WireHash> {
        stored.parent.as_ref().map(|hash| self.hash(hash))
    }
}

type ExtraKeys<'a> = Vec<Option<Vec<WireKey<'a>>>>;

fn extra_keys(stored: &Stored) -> ExtraKeys<'_> {
    let block = |keys: &'_ Vec<ExtraKey>| (!keys.is_empty()).then_some(());
    stored.extra_keys.iter().map(|keys| block(keys).map(|()| keys.iter().map(WireKey).collect())).collect()
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum MapEvent<'a> {
    BlockStored {
        block_hashes: Vec<WireHash>,
        parent_block_hash: Option<WireHash>,
        token_ids: &'a [u32],
        block_size: u32,
        lora_id: (),
        medium: &'static str,
        lora_name: (),
        extra_keys: ExtraKeys<'a>,
        group_idx: u32,
        kv_cache_spec_kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<&'a str>,
    },
    BlockRemoved {
        block_hashes: [WireHash; 1],
        medium: &'static str,
        group_idx: u32,
    },
    AllBlocksCleared {},
}

/// Hashes, parent, tokens, block size, adapter id, medium, adapter name, extra keys, group, kind, sliding window.
type StoredArray<'a> = (
    &'static str,
    Vec<WireHash>,
    Option<WireHash>,
    &'a [u32],
    u32,
    Option<u32>,
    &'static str,
    Option<&'a str>,
    ExtraKeys<'a>,
    u32,
    &'static str,
    Option<u32>,
);

#[derive(Serialize)]
#[serde(untagged)]
enum ArrayEvent<'a> {
    Stored(StoredArray<'a>),
    Removed((&'static str, [WireHash; 1], &'static str, u32)),
    Cleared((&'static str,)),
}

enum WireHash {
    Int(u64),
    Bytes([u8; 32]),
}

impl Serialize for WireHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(hash) => serializer.serialize_u64(*hash),
            Self::Bytes(hash) => serializer.serialize_bytes(hash),
        }
    }
}

struct WireKey<'a>(&'a ExtraKey);

impl Serialize for WireKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ExtraKey::Media { identity, offset } => (&**identity, offset).serialize(serializer),
            ExtraKey::Salt(salt) => serializer.serialize_str(salt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_hash::Scope;
    use serde_json::{Value, json};

    fn decoded(format: EventFormat, hashes: HashForm, events: &[KvEvent]) -> Value {
        let codec = EventCodec { format, hashes, block_size: 2, rank: 3 };
        rmp_serde::from_slice(&codec.encode(1.5, events).unwrap()).unwrap()
    }

    fn events() -> (Vec<KvEvent>, u64, u64) {
        let parent = Scope::default().hash(&BlockHash::root(), 0, &[1, 2]);
        let hash = Scope::default().hash(&parent, 2, &[3, 4]);
        let media = ExtraKey::Media { identity: "A".into(), offset: -1 };
        let stored = Stored {
            parent: Some(parent),
            hashes: vec![hash, hash],
            tokens: vec![3, 4, 5, 6],
            extra_keys: vec![vec![media, ExtraKey::Salt("s".into())], vec![]],
            session_id: None,
        };
        (
            vec![KvEvent::Cleared, KvEvent::Removed(parent), KvEvent::Stored(stored)],
            parent.low_u64(),
            hash.low_u64(),
        )
    }

    #[test]
    fn the_map_form_leaves_defaults_out_but_keeps_the_nulls_that_vllm_keeps() {
        let (events, parent, hash) = events();
        let wanted = json!([1.5, [
            {"type": "AllBlocksCleared"},
            {"type": "BlockRemoved", "block_hashes": [parent], "medium": "GPU", "group_idx": 0},
            {"type": "BlockStored", "block_hashes": [hash, hash], "parent_block_hash": parent, "token_ids": [3, 4, 5, 6],
             "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": null,
             "extra_keys": [[["A", -1], "s"], null], "group_idx": 0, "kv_cache_spec_kind": "full_attention"},
        ], 3]);
        assert_eq!(decoded(EventFormat::Map, HashForm::Int, &events), wanted);
    }

    #[test]
    fn the_array_form_is_positional_with_nulls_at_the_end() {
        let (events, parent, hash) = events();
        let wanted = json!([
            1.5,
            [
                ["AllBlocksCleared"],
                ["BlockRemoved", [parent], "GPU", 0],
                [
                    "BlockStored",
                    [hash, hash],
                    parent,
                    [3, 4, 5, 6],
                    2,
                    null,
                    "GPU",
                    null,
                    [[["A", -1], "s"], null],
                    0,
                    "full_attention",
                    null
                ],
            ],
            3
        ]);
        assert_eq!(decoded(EventFormat::Array, HashForm::Int, &events), wanted);
    }

    #[test]
    fn binary_hashes_are_whole_digests() {
        let (events, ..) = events();
        let codec = EventCodec { format: EventFormat::Map, hashes: HashForm::Bytes, block_size: 2, rank: 0 };
        let bytes = codec.encode(0.0, &events).unwrap();
        let KvEvent::Removed(hash) = &events[1] else { panic!("not a removal") };
        let marked: Vec<u8> = [0xc4, 32].iter().chain(hash.bytes()).copied().collect();
        assert!(bytes.windows(marked.len()).any(|window| window == marked));
    }
}
