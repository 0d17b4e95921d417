//! The scheme's golden vectors.

use identity::{BlockKey, KeyScope, MediaKey, MediaSpan, block_keys, extend_key};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    scheme: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    tokens: Vec<u32>,
    block_size: u32,
    media: Vec<Item>,
    lora_name: String,
    cache_salt: String,
    secret: String,
    root: String,
    keys: Vec<String>,
}

#[derive(Deserialize)]
struct Item {
    media_id: String,
    offset: u32,
    length: u32,
}

#[test]
fn keys_equal_the_golden_vectors() {
    let golden: Golden = serde_json::from_str(include_str!("../../../tests/golden/sl1.json")).unwrap();
    assert_eq!(golden.scheme, identity::SCHEME);
    assert!(!golden.cases.is_empty());
    for case in golden.cases {
        let root =
            KeyScope { secret: &case.secret, lora_name: &case.lora_name, cache_salt: &case.cache_salt }
                .root();
        assert_eq!(root.to_string(), case.root, "{}", case.name);
        let media: Vec<MediaSpan> = case
            .media
            .iter()
            .map(|item| MediaSpan { key: MediaKey::of(&item.media_id), start: item.offset, len: item.length })
            .collect();
        let keys: Vec<String> =
            block_keys(root, &case.tokens, &media, case.block_size).iter().map(ToString::to_string).collect();
        assert_eq!(keys, case.keys, "{}", case.name);
    }
}

/// The scheme, block by block, as the design writes it.
fn reference(root: BlockKey, tokens: &[u32], media: &[MediaSpan], size: u32) -> Vec<BlockKey> {
    let mut key = root;
    let mut keys = Vec::new();
    for (block, start) in tokens.chunks_exact(size as usize).zip((0..).step_by(size as usize)) {
        let overlapping = media.iter().filter(|span| span.start < start + size && span.end() > start);
        key = extend_key(key, block, overlapping.map(|span| span.key.get()));
        keys.push(key);
    }
    keys
}

proptest! {
    #[test]
    fn keys_equal_the_reference(
        len in 0_u32..300,
        size in 1_u32..20,
        spans in prop::collection::vec((0_u32..40, 0_u32..60), 0..8),
    ) {
        let tokens: Vec<u32> = (0..len).collect();
        let mut at = 0;
        let mut media = Vec::new();
        for (gap, len) in spans {
            media.push(MediaSpan { key: MediaKey::new(u64::from(at) << 40 | 5), start: at + gap, len });
            at += gap + len;
        }
        let root = BlockKey::new(3);
        prop_assert_eq!(block_keys(root, &tokens, &media, size), reference(root, &tokens, &media, size));
    }
}
