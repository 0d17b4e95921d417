//! The scheme's golden vectors.

use identity::{KeyScope, MediaKey, MediaSpan, block_keys};
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
