//! Configurations as published checkpoints have them, through to the golden counts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use prompt::media_config::{
    Error, MediaFiles, config_of_type, geometry, geometry_of, parse_size, report, report_each,
};

fn goldens() -> BTreeMap<String, BTreeMap<String, String>> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/token-counts/transformers.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A golden's key, the model's type, and the files that a checkpoint of it has.
struct Case {
    key: &'static str,
    config: &'static str,
    preprocessor: Option<&'static str>,
    processor: Option<&'static str>,
}

const fn case(key: &'static str, config: &'static str, preprocessor: &'static str) -> Case {
    Case { key, config, preprocessor: Some(preprocessor), processor: None }
}

const CLIP: &str = r#"{"crop_size":{"height":336,"width":336},"size":{"shortest_edge":336}}"#;

const CASES: &[Case] = &[
    case(
        "qwen2_vl",
        r#"{"model_type":"qwen2_vl"}"#,
        r#"{"min_pixels":3136,"max_pixels":12845056,"patch_size":14,"merge_size":2}"#,
    ),
    case(
        "qwen2_vl",
        r#"{"model_type":"qwen2_vl"}"#,
        r#"{"min_pixels":3136,"max_pixels":12845056,"size":{"min_pixels":1,"max_pixels":2},"patch_size":14,"merge_size":2}"#,
    ),
    case(
        "qwen2_5_vl",
        r#"{"model_type":"qwen2_5_vl"}"#,
        r#"{"size":{"shortest_edge":3136,"longest_edge":12845056},"patch_size":14,"merge_size":2}"#,
    ),
    case(
        "qwen3_vl",
        r#"{"model_type":"qwen3_vl_moe"}"#,
        r#"{"size":{"shortest_edge":65536,"longest_edge":16777216},"patch_size":16,"merge_size":2}"#,
    ),
    Case {
        key: "qwen3_vl",
        config: r#"{"model_type":"qwen3_vl"}"#,
        preprocessor: Some(r#"{"size":{"shortest_edge":1,"longest_edge":2},"patch_size":3}"#),
        processor: Some(
            r#"{"image_processor":{"size":{"shortest_edge":65536,"longest_edge":16777216},"patch_size":16}}"#,
        ),
    },
    case("llava", r#"{"model_type":"llava"}"#, CLIP),
    case(
        "llava",
        r#"{"model_type":"llava","vision_config":{"model_type":"clip_vision_model","image_size":336,"patch_size":14}}"#,
        CLIP,
    ),
    case("llava_next", r#"{"model_type":"llava_next"}"#, CLIP),
    case(
        "llava_next_pin2",
        r#"{"model_type":"llava_next","vision_feature_select_strategy":"default","vision_config":{"model_type":"clip_vision_model","image_size":336,"patch_size":14},"image_grid_pinpoints":[[336,672],[672,336],[672,672],[1008,336],[336,1008],[1008,1008],[1344,336]]}"#,
        r#"{"image_grid_pinpoints":[[336,336]]}"#,
    ),
    case(
        "llava_next_pin2",
        r#"{"model_type":"llava_next"}"#,
        r#"{"image_grid_pinpoints":[[336,672],[672,336],[672,672],[1008,336],[336,1008],[1008,1008],[1344,336]],"size":{"shortest_edge":336}}"#,
    ),
    case("llama4", r#"{"model_type":"llama4"}"#, r#"{"size":{"height":336,"width":336},"max_patches":16}"#),
    case(
        "llama4",
        r#"{"model_type":"llama4","vision_config":{"image_size":336,"patch_size":14,"pixel_shuffle_ratio":0.5}}"#,
        r#"{"size":{"height":336,"width":336},"max_patches":16,"resize_to_max_canvas":false}"#,
    ),
    case(
        "kimi_k25",
        r#"{"model_type":"kimi_k25"}"#,
        r#"{"patch_size":14,"merge_size":2,"max_patches":16384,"size":{"max_height":512,"max_width":512}}"#,
    ),
    case(
        "kimi_k25",
        r#"{"model_type":"kimi_k25"}"#,
        r#"{"media_proc_cfg":{"in_patch_limit":16384,"patch_size":14,"merge_kernel_size":[2,2],"fixed_output_tokens":null,"patch_limit_on_one_side":512}}"#,
    ),
    case(
        "gemma3",
        r#"{"model_type":"gemma3","mm_tokens_per_image":256}"#,
        r#"{"size":{"height":896,"width":896},"do_pan_and_scan":null,"image_seq_length":256}"#,
    ),
    case(
        "gemma4",
        r#"{"model_type":"gemma4"}"#,
        r#"{"patch_size":16,"max_soft_tokens":280,"pooling_kernel_size":3}"#,
    ),
    case(
        "pixtral_direct",
        r#"{"model_type":"pixtral"}"#,
        r#"{"size":{"longest_edge":1024},"patch_size":{"height":16,"width":16}}"#,
    ),
    case(
        "pixtral_direct",
        r#"{"model_type":"llava","vision_config":{"model_type":"pixtral","image_size":1024,"patch_size":16}}"#,
        r#"{"size":{"longest_edge":1024},"patch_size":{"height":16,"width":16}}"#,
    ),
    case(
        "mistral3_direct",
        r#"{"model_type":"mistral3"}"#,
        r#"{"size":{"longest_edge":1540},"patch_size":14}"#,
    ),
    case(
        "mistral3_direct",
        r#"{"model_type":"mistral3","spatial_merge_size":2,"vision_config":{"model_type":"pixtral","image_size":1540,"patch_size":14}}"#,
        r#"{"size":{"longest_edge":1540},"patch_size":28}"#,
    ),
    case(
        "mistral3_direct_nomerge",
        r#"{"model_type":"mistral3","spatial_merge_size":1}"#,
        r#"{"size":{"longest_edge":1540},"patch_size":14}"#,
    ),
    case("phi3_v", r#"{"model_type":"phi3_v"}"#, r#"{"num_crops":16,"num_img_tokens":144}"#),
    case(
        "phi4_direct",
        r#"{"model_type":"phi4_multimodal"}"#,
        r#"{"size":{"height":448,"width":448},"patch_size":14,"dynamic_hd":36}"#,
    ),
    case("phi4_direct", r#"{"model_type":"phi4mm"}"#, r#"{"dynamic_hd":36}"#),
    case(
        "internvl",
        r#"{"model_type":"internvl"}"#,
        r#"{"size":{"height":448,"width":448},"crop_to_patches":false,"min_patches":1,"max_patches":12}"#,
    ),
    Case {
        key: "internvl",
        config: r#"{"model_type":"internvl_chat","vision_config":{"image_size":448,"patch_size":14},"downsample_ratio":0.5,"min_dynamic_patch":1,"max_dynamic_patch":12,"use_thumbnail":true,"dynamic_image_size":true}"#,
        preprocessor: None,
        processor: None,
    },
    case(
        "qwen3_vl",
        r#"{"model_type":"qwen3_vl"}"#,
        r#"{"image_processor":{"size":{"shortest_edge":65536,"longest_edge":16777216},"patch_size":16}}"#,
    ),
    Case {
        key: "idefics3",
        config: r#"{"model_type":"idefics3"}"#,
        preprocessor: Some(
            r#"{"size":{"longest_edge":1456},"max_image_size":{"longest_edge":364},"do_image_splitting":true}"#,
        ),
        processor: Some(r#"{"image_seq_len":169,"processor_class":"Idefics3Processor"}"#),
    },
    case(
        "glm4v",
        r#"{"model_type":"glm4v"}"#,
        r#"{"size":{"shortest_edge":12544,"longest_edge":11760000},"patch_size":14,"merge_size":2,"temporal_patch_size":2}"#,
    ),
];

#[test]
fn published_configurations_give_the_golden_counts() {
    let goldens = goldens();
    for case in CASES {
        let read = geometry(
            case.config.as_bytes(),
            case.preprocessor.map(str::as_bytes),
            case.processor.map(str::as_bytes),
        );
        let geometry = read.unwrap().unwrap();
        let golden = &goldens[case.key];
        let sizes: Vec<_> = golden.keys().map(|size| parse_size(size).unwrap()).collect();
        for (line, expected) in report_each(&geometry, &sizes, |_| 1).iter().zip(golden.values()) {
            let found = line.placeholder_tokens.map_or_else(|| "ERR".to_owned(), |count| count.to_string());
            let expected = if expected.starts_with("ERR") { "ERR" } else { expected };
            assert_eq!(found, expected, "{}: {line:?}", case.config);
            assert_eq!(line.error.is_some(), expected == "ERR");
        }
    }
    let covered: std::collections::BTreeSet<_> = CASES.iter().map(|case| case.key.to_owned()).collect();
    assert_eq!(covered, goldens.keys().cloned().collect(), "every golden has a case");
}

#[test]
fn a_minicpm_v_numbers_its_images() {
    let geometry = geometry(&config_of_type("minicpmv4_6"), Some(br#"{"max_slice_nums":9}"#), None).unwrap();
    let sizes = ["640x480", "640x480"].map(|size| parse_size(size).unwrap());
    let expanded = geometry.unwrap().expand(&sizes);
    let [first, second] = expanded.try_into().unwrap();
    assert_ne!(first, second);
    assert_eq!((first.unwrap().placeholder_tokens, second.unwrap().placeholder_tokens), (203, 203));
}

#[test]
fn types_are_matched_exactly() {
    for model_type in
        ["", "qwen2", "qwen2_vl_text", "Qwen2_VL", "llava_next_video", "minicpmv", "deepseek_vl2"]
    {
        let config = config_of_type(model_type);
        assert_eq!(geometry(&config, Some(b"{}"), None).unwrap(), None, "{model_type}");
    }
    assert_eq!(geometry(b"{}", None, None).unwrap(), None);
}

#[test]
fn engine_arguments_hide_the_files() {
    let count = |kwargs: &str, preprocessor: &str| {
        let files = MediaFiles {
            config: br#"{"model_type":"qwen2_5_vl"}"#,
            preprocessor: Some(preprocessor.as_bytes()),
            processor: None,
            kwargs: Some(kwargs.as_bytes()),
        };
        let geometry = geometry_of(&files).unwrap().unwrap();
        report(&geometry, &[parse_size("2800x2800").unwrap()], |_| 1)[0].tokens.unwrap()
    };
    let aliases = r#"{"min_pixels":3136,"max_pixels":12845056}"#;
    let edges = r#"{"size":{"shortest_edge":3136,"longest_edge":12845056}}"#;
    for file in [aliases, edges] {
        assert_eq!(count("{}", file), 10_000);
        for kwargs in [
            r#"{"max_pixels":78400}"#,
            r#"{"size":{"longest_edge":78400}}"#,
            r#"{"images_kwargs":{"max_pixels":78400}}"#,
            r#"{"max_pixels":12845056,"images_kwargs":{"size":{"longest_edge":78400},"max_pixels":78400}}"#,
        ] {
            assert_eq!(count(kwargs, file), 100, "{kwargs} over {file}");
        }
    }
}

#[test]
fn what_the_reference_refuses_is_an_error() {
    let error = |config: &str, preprocessor: Option<&str>| {
        geometry(config.as_bytes(), preprocessor.map(str::as_bytes), None).unwrap_err().to_string()
    };
    let qwen = r#"{"model_type":"qwen2_vl"}"#;
    for (config, preprocessor, expected) in [
        ("[]", None, "config.json is not a JSON object"),
        ("{", None, "config.json is not a JSON object"),
        (qwen, None, "preprocessor_config.json is needed for model type qwen2_vl and is missing"),
        (qwen, Some("7"), "preprocessor_config.json is not a JSON object"),
        (
            qwen,
            Some(r#"{"patch_size":"14"}"#),
            "patch_size in preprocessor_config.json is not an integer of at least 0",
        ),
        (
            qwen,
            Some(r#"{"patch_size":-1}"#),
            "patch_size in preprocessor_config.json is not an integer of at least 0",
        ),
        (qwen, Some(r#"{"patch_size":0}"#), "media configuration makes no sense"),
        (
            qwen,
            Some(r#"{"size":{"height":448}}"#),
            "size in preprocessor_config.json is not an object with shortest_edge and longest_edge",
        ),
        (
            r#"{"model_type":"llava","vision_config":{"model_type":"eva"}}"#,
            Some("{}"),
            "vision_config.model_type in config.json is not a vision tower with known features",
        ),
        (
            r#"{"model_type":"gemma4"}"#,
            Some(r#"{"max_soft_tokens":100}"#),
            "max_soft_tokens in preprocessor_config.json is not one of 70, 140, 280, 560, 1120",
        ),
        (
            r#"{"model_type":"llava_next","image_grid_pinpoints":[[1]]}"#,
            Some("{}"),
            "image_grid_pinpoints in config.json is not a list of [height, width]",
        ),
    ] {
        assert_eq!(error(config, preprocessor), expected, "{config} {preprocessor:?}");
    }
    let invalid = geometry(qwen.as_bytes(), Some(br#"{"merge_size":100000}"#), None).unwrap_err();
    assert!(matches!(invalid, Error::Invalid(_)), "{invalid}");
}

#[test]
fn sizes_are_parsed_strictly() {
    assert_eq!(parse_size("640x480").unwrap().to_string(), "640x480");
    assert_eq!(parse_size("4294967295x1").unwrap().width, u32::MAX);
    for text in
        ["", "640", "x", "640x", "x480", "640x480x3", "-1x5", "+1x5", "1 x 5", "4294967296x1", "1.5x2"]
    {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn a_line_serialises_as_documented() {
    let geometry = geometry(&config_of_type("llama4"), Some(b"{}"), None).unwrap().unwrap();
    let lines = report(&geometry, &[parse_size("1x1").unwrap(), parse_size("0x9").unwrap()], |_| 1);
    assert_eq!(
        serde_json::to_string(&lines).unwrap(),
        concat!(
            r#"[{"width":1,"height":1,"family":"llama4","placeholder_tokens":147,"tokens":147,"error":null},"#,
            r#"{"width":0,"height":9,"family":"llama4","placeholder_tokens":null,"tokens":null,"error":"image 0x9 has no pixels"}]"#
        )
    );
}
