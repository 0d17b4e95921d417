//! Decoding of anything: no panic, and what can be read is read.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "fixtures have a known form, drawn collections are short"
)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine_events::{Config, Translator, vllm};
use proptest::prelude::*;

/// Any value of the format, as bytes.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(vec![0xc0]),
        any::<u64>().prop_map(|number| [&[0xcf][..], &number.to_be_bytes()].concat()),
        any::<i8>().prop_map(|number| [&[0xd0][..], &number.to_be_bytes()].concat()),
        (0_u8..128).prop_map(|number| vec![number]),
        any::<f64>().prop_map(|number| [&[0xcb][..], &number.to_be_bytes()].concat()),
        prop::collection::vec(any::<u8>(), 0..32)
            .prop_map(|bytes| [&[0xc4, bytes.len() as u8][..], &bytes].concat()),
        prop_oneof![
            Just("type"),
            Just("BlockStored"),
            Just("BlockRemoved"),
            Just("AllBlocksCleared"),
            Just("block_hashes"),
            Just("parent_block_hash"),
            Just("token_ids"),
            Just("block_size"),
            Just("extra_keys"),
            Just("medium"),
            Just("group_idx"),
            Just("kv_cache_spec_kind"),
            Just("lora_name"),
            Just("GPU"),
        ]
        .prop_map(|text| [&[0xd9, text.len() as u8][..], text.as_bytes()].concat()),
    ];
    leaf.prop_recursive(6, 96, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(|items| [
                vec![0x90 | items.len() as u8],
                items.concat()
            ]
            .concat()),
            prop::collection::vec((inner.clone(), inner), 0..8).prop_map(|pairs| {
                let items: Vec<u8> =
                    pairs.iter().flat_map(|(key, value)| [&key[..], value].concat()).collect();
                [vec![0x80 | pairs.len() as u8], items].concat()
            }),
        ]
    })
}

fn recorded() -> Vec<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/vllm/synthetic_by_version.jsonl");
    let text = std::fs::read_to_string(path).expect("fixture exists");
    let payload = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("fixture is JSON lines");
        STANDARD.decode(line["payload_b64"].as_str().expect("text")).expect("base64")
    };
    text.lines().map(payload).collect()
}

fn digest(payload: &[u8]) {
    if let Ok(batch) = vllm::decode(payload) {
        let mut translator = Translator::new(Config { blocks_max: 64, ..Config::default() });
        translator.apply(&batch);
        assert_eq!(translator.digest().len(), translator.blocks());
    }
}

proptest! {
    #[test]
    fn any_bytes(payload in prop::collection::vec(any::<u8>(), 0..256)) {
        digest(&payload);
    }

    #[test]
    fn any_values(events in prop::collection::vec(value(), 0..6)) {
        digest(&[vec![0x93, 0xc0, 0x90 | events.len() as u8], events.concat(), vec![0x00]].concat());
    }

    #[test]
    fn damaged_batches(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut payload = which.get(&recorded()).clone();
        for (index, byte) in damage {
            *index.get_mut(&mut payload) = byte;
        }
        if let Some(cut) = cut {
            payload.truncate(cut.index(payload.len()));
        }
        digest(&payload);
    }
}

#[test]
fn a_malformed_event_leaves_the_others() {
    // [0.0, [["BlockRemoved", "no hashes"], ["Unheard", 1], {"type": "AllBlocksCleared", "new": {"a": [1]}}, 5], 3]
    let payload = [
        &[0x93, 0x00, 0x94, 0x92][..],
        b"\xacBlockRemoved\xa9no hashes\x92\xa7Unheard\x01",
        b"\x82\xa4type\xb0AllBlocksCleared\xa3new\x81\xa1a\x91\x01\x05\x03",
    ]
    .concat();
    let batch = vllm::decode(&payload).expect("decodes");
    assert_eq!((batch.malformed, batch.unknown, batch.rank), (2, 1, Some(3)));
    assert_eq!(batch.events, [engine_events::Event::Cleared]);
}

#[test]
fn lengths_that_lie_allocate_nothing() {
    for payload in [
        &b"\x92\x00\xdd\xff\xff\xff\xff"[..],
        b"\xdd\xff\xff\xff\xff\x00",
        b"\x92\x00\x91\xdf\xff\xff\xff\xff",
    ] {
        assert!(vllm::decode(payload).is_err(), "{payload:?}");
    }
}
