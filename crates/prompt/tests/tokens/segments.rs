//! The segment cache answers what the tokeniser would have answered.

use std::path::Path;

use prompt::{Model, ModelFiles, ModelOptions};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// A byte-level tokeniser like those of Qwen and Llama 3, with parts replaced.
fn tokenizer(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tiny-vl/tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut json);
    serde_json::to_vec(&json).unwrap()
}

fn model(tokenizer: Vec<u8>) -> Model {
    let config = br#"{"model_type": "llama"}"#.to_vec();
    Model::new(&ModelFiles { tokenizer, config, ..ModelFiles::default() }, ModelOptions::default()).unwrap()
}

/// Text with added tokens, pieces of them, white space and what normalisers change.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<|im_start|>".to_owned()),
        Just("<|im_end|>".to_owned()),
        Just("<|image_pad|>".to_owned()),
        Just("<|im_".to_owned()),
        Just("end|>".to_owned()),
        Just("<|<|im_end|>|>".to_owned()),
        Just("e\u{301}".to_owned()),
        Just("\u{1100}\u{1161}".to_owned()),
        Just("ﬁ Å".to_owned()),
        "[ \\n\\t\u{a0}]{0,3}",
        "[a-zA-Z0-9 ',.]{0,24}",
        any::<String>(),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Checks that a model tokenises as its tokeniser does by itself, twice, so that the cache answers too.
fn check(json: &[u8], segmented: bool) {
    let model = model(json.to_vec());
    assert_eq!(model.is_segmented(), segmented);
    let mut reference: Tokenizer = std::str::from_utf8(json).unwrap().parse().unwrap();
    reference.with_padding(None);
    let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    runner
        .run(&(texts(), any::<bool>()), |(text, special)| {
            let whole = reference.encode(text.as_str(), special).unwrap();
            for _ in 0..2 {
                prop_assert_eq!(model.tokenize(&text, special).unwrap(), whole.get_ids(), "{:?}", &text);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn byte_level_texts_are_segmented() {
    check(&tokenizer(|_| {}), true);
}

#[test]
fn normalised_texts_are_segmented() {
    for normalizer in [
        json!({"type": "NFC"}),
        json!({"type": "NFKC"}),
        json!({"type": "Lowercase"}),
        json!({"type": "Prepend", "prepend": "x"}),
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        json!({"type": "Replace", "pattern": {"String": " "}, "content": "_"}),
    ] {
        check(&tokenizer(|json| json["normalizer"] = normalizer), true);
    }
}

#[test]
fn texts_with_a_prefix_space_are_segmented() {
    check(&tokenizer(|json| json["pre_tokenizer"]["add_prefix_space"] = json!(true)), true);
}

#[test]
fn special_tokens_surround_segments() {
    let special = |id: &str, at: u32| json!({"id": id, "ids": [at], "tokens": [id]});
    let piece = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let template = json!({
        "type": "TemplateProcessing",
        "single": [piece("<|endoftext|>"), {"Sequence": {"id": "A", "type_id": 0}}, piece("<|im_end|>")],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": special("<|endoftext|>", 4088), "<|im_end|>": special("<|im_end|>", 4090)},
    });
    let processors = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}, template,
    ]});
    check(&tokenizer(|json| json["post_processor"] = processors), true);
}

#[test]
fn texts_whose_beginning_counts_are_not_segmented() {
    for scheme in ["first", "always", "never"] {
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
        let sequence = json!({"type": "Sequence", "pretokenizers": [metaspace]});
        check(&tokenizer(|json| json["pre_tokenizer"] = sequence), scheme != "first");
    }
}

#[test]
fn added_tokens_that_reach_into_text_are_not_split_at() {
    for flag in ["lstrip", "rstrip", "single_word"] {
        let set =
            |json: &mut Value| *json.pointer_mut(&format!("/added_tokens/2/{flag}")).unwrap() = json!(true);
        check(&tokenizer(set), false);
    }
}

#[test]
fn normalised_added_tokens_stay_inside_segments() {
    let set = |json: &mut Value| {
        *json.pointer_mut("/added_tokens/2/normalized").unwrap() = json!(true);
        json["normalizer"] = json!({"type": "Lowercase"});
    };
    check(&tokenizer(set), true);
}

#[test]
fn tokens_that_only_the_config_lists_are_added() {
    let files = ModelFiles {
        tokenizer: tokenizer(|_| {}),
        config: b"{}".to_vec(),
        tokenizer_config: Some(
            json!({"added_tokens_decoder": {
                "4097": {"content": "<two>", "special": true},
                "4096": {"content": "<one>", "special": false, "normalized": false},
                "4090": {"content": "<|im_end|>", "special": true},
            }})
            .to_string()
            .into_bytes(),
        ),
        ..ModelFiles::default()
    };
    let model = Model::new(&files, ModelOptions::default()).unwrap();
    assert_eq!(model.tokenize("<two><one><|im_end|>", false).unwrap(), [4097, 4096, 4090]);
    assert_eq!(model.vocabulary_size(), 4098);
}

#[test]
fn the_cache_is_bounded() {
    let options = ModelOptions { segment_cache_bytes_max: 32 << 10, ..ModelOptions::default() };
    let files = ModelFiles { tokenizer: tokenizer(|_| {}), config: b"{}".to_vec(), ..ModelFiles::default() };
    let model = Model::new(&files, options).unwrap();
    for index in 0..400 {
        model.tokenize(&format!("{index} {}", "some words that differ ".repeat(9)), false).unwrap();
    }
    assert!(model.segment_cache_bytes() <= 32 << 10, "{}", model.segment_cache_bytes());
    assert!(model.segment_cache_bytes() > 0);
}

#[test]
fn tokens_are_the_texts() {
    let model = model(tokenizer(|_| {}));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    runner
        .run(&"[ -~]{0,200}", |text| {
            let tokens = model.tokenize(&text, false).unwrap();
            prop_assert_eq!(model.detokenize(&tokens, false).unwrap(), text);
            Ok(())
        })
        .unwrap();
}
