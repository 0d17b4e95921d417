//! The goldens: every family × every size, errors included.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use media_geometry::{
    AnyRes, Expansion, Family, Gemma3, Gemma4, Geometry, Glm4v, Idefics3, ImageSize, InternVl, KimiK25,
    Llama4, Llava, MiniCpmV, PanAndScan, Phi3v, Phi4Mm, Pixtral, QwenVl, VisionTower,
};

const CLIP: VisionTower =
    VisionTower { image_size: 336, patch_size: 14, class_feature: true, drops_first: true };

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/token-counts").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn compare(
    name: &str,
    family: &Family,
    goldens: impl Iterator<Item = (ImageSize, Option<u32>)>,
    count: fn(&Expansion) -> u32,
) {
    let geometry = Geometry::new(family.clone()).unwrap();
    let mut sizes = 0;
    let mut differences = Vec::new();
    for (size, expected) in goldens {
        sizes += 1;
        let found = geometry.expand(&[size]).remove(0);
        if found.as_ref().ok().map(count) != expected {
            differences.push(format!("{size}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(sizes > 30, "{name} has {sizes} sizes");
    assert!(differences.is_empty(), "{name}: {} differences\n{}", differences.len(), differences.join("\n"));
}

fn check_by(key: &str, family: &Family, count: fn(&Expansion) -> u32) {
    let all: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(&fixture("transformers.json")).unwrap();
    let sizes = all[key].iter().map(|(text, expected)| {
        let (width, height) = text.split_once('x').unwrap();
        let expected = if expected.starts_with("ERR") { None } else { Some(expected.parse().unwrap()) };
        (ImageSize::new(width.parse().unwrap(), height.parse().unwrap()), expected)
    });
    compare(key, family, sizes, count);
}

fn check(key: &str, family: &Family) {
    check_by(key, family, |expansion| expansion.placeholder_tokens);
}

/// Compares with the second run's CSV: family, config, w, h, tokens, error, …
fn check_csv(file: &str, config: &str, family: &Family) {
    let text = fixture(&format!("token_counts_{file}.csv"));
    let rows = text.lines().skip(1).map(|line| line.splitn(7, ',').collect::<Vec<_>>());
    let sizes = rows.filter(|row| row[1] == config).map(|row| {
        let size = ImageSize::new(row[2].parse().unwrap(), row[3].parse().unwrap());
        (size, row[4].parse().ok())
    });
    compare(&format!("{file} {config}"), family, sizes, |expansion| expansion.placeholder_tokens);
}

const fn qwen(patch_size: u32, min_pixels: u64, max_pixels: u64) -> Family {
    Family::QwenVl(QwenVl { patch_size, merge_size: 2, min_pixels, max_pixels })
}

#[test]
fn qwen_vl() {
    check("qwen2_vl", &qwen(14, 3136, 12_845_056));
    check("qwen2_5_vl", &qwen(14, 3136, 12_845_056));
    check("qwen3_vl", &qwen(16, 65_536, 16_777_216));
    for file in ["qwen2_vl", "qwen2_5_vl"] {
        check_csv(file, "default", &qwen(14, 3136, 12_845_056));
        check_csv(file, "max_pixels_1003520", &qwen(14, 3136, 1_003_520));
    }
    check_csv("qwen2_vl", "min_256x28x28_max_1280x28x28", &qwen(14, 200_704, 1_003_520));
    check_csv("qwen3_vl", "default", &qwen(16, 65_536, 16_777_216));
    check_csv("qwen3_vl", "max_1M", &qwen(16, 65_536, 1_048_576));
}

#[test]
fn llava() {
    check("llava", &Family::Llava(Llava { tower: CLIP }));
    check_csv("llava_1_5", "default", &Family::Llava(Llava { tower: CLIP }));
}

#[test]
fn llava_anyres() {
    let mut pinpoints = vec![(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];
    let next = |pinpoints: &[(u32, u32)]| {
        Family::AnyRes(AnyRes { tower: CLIP, pinpoints: pinpoints.to_vec(), tiles_max: None })
    };
    check("llava_next", &next(&pinpoints));
    check_csv("llava_next", "v1.6_336", &next(&pinpoints));
    pinpoints.extend([(1008, 1008), (1344, 336)]);
    check("llava_next_pin2", &next(&pinpoints));
    let tower = VisionTower { image_size: 384, patch_size: 14, class_feature: false, drops_first: false };
    let pinpoints = (1..=6).flat_map(|rows| (1..=6).map(move |cols| (384 * rows, 384 * cols))).collect();
    let onevision = Family::AnyRes(AnyRes { tower, pinpoints, tiles_max: Some(9) });
    check_csv("llava_onevision", "anyres_max_9_384", &onevision);
}

#[test]
fn llama4() {
    let family = Family::Llama4(Llama4 {
        tile_size: 336,
        tiles_max: 16,
        tile_tokens: 144,
        resize_to_max_canvas: false,
    });
    // This golden counts the whole layout, the CSV the patch tokens.
    check_by("llama4", &family, Expansion::tokens);
    check_csv("llama4", "scout_default", &family);
}

#[test]
fn gemma() {
    check("gemma3", &Family::Gemma3(Gemma3 { image_tokens: 256, pan_and_scan: None }));
    check_csv(
        "gemma3",
        "default_no_pan_scan",
        &Family::Gemma3(Gemma3 { image_tokens: 256, pan_and_scan: None }),
    );
    let pan_and_scan = Some(PanAndScan { crop_size_min: 256, crops_max: 4, ratio_min: 1.2 });
    check_csv("gemma3", "pan_and_scan", &Family::Gemma3(Gemma3 { image_tokens: 256, pan_and_scan }));
    let family = Family::Gemma4(Gemma4 {
        patch_size: 16,
        pooling_size: 3,
        tokens_max: 280,
        begin_id: 255_999,
        end_id: 258_882,
    });
    check("gemma4", &family);
    check_csv("gemma4", "default_280", &family);
}

#[test]
fn pixtral_and_mistral3() {
    let family = |longest_edge, patch_size, merge_size| {
        Family::Pixtral(Pixtral {
            longest_edge,
            patch_size,
            merge_size,
            break_token: "[IMG_BREAK]".into(),
            end_token: "[IMG_END]".into(),
        })
    };
    check("pixtral_direct", &family(1024, 16, 1));
    check("mistral3_direct", &family(1540, 14, 2));
    check("mistral3_direct_nomerge", &family(1540, 14, 1));
    check_csv("pixtral_mistral3", "pixtral_12b", &family(1024, 16, 1));
    check_csv("pixtral_mistral3", "mistral_small_3.1", &family(1540, 14, 2));
}

#[test]
fn idefics3_and_smolvlm() {
    let family = |longest_edge, tile_size, tile_tokens, splits| {
        Family::Idefics3(Idefics3 { longest_edge, tile_size, tile_tokens, splits })
    };
    check("idefics3", &family(1456, 364, 169, true));
    check_csv("idefics3_smolvlm", "idefics3_8b", &family(1456, 364, 169, true));
    check_csv("idefics3_smolvlm", "smolvlm_2b", &family(1536, 384, 81, true));
    check_csv("idefics3_smolvlm", "smolvlm2_2.2b_x", &family(1536, 384, 81, false));
    check_csv("smolvlm2", "longest2048_tile512_seq64", &family(2048, 512, 64, true));
}

#[test]
fn internvl() {
    let family = Family::InternVl(InternVl {
        tile_size: 448,
        tiles_min: 1,
        tiles_max: 12,
        tile_tokens: 256,
        thumbnail: true,
        text_target: false,
    });
    check("internvl", &family);
    check_csv("internvl", "hf_internvl3_max12", &family);
}

#[test]
fn glm4v() {
    let family = |max_pixels| {
        Family::Glm4v(Glm4v {
            patch_size: 14,
            merge_size: 2,
            temporal_patch_size: 2,
            min_pixels: 112 * 112,
            max_pixels,
        })
    };
    check("glm4v", &family(28 * 28 * 15_000));
    check_csv("glm4v", "default", &family(9_633_792));
}

#[test]
fn phi() {
    check("phi3_v", &Family::Phi3v(Phi3v { crops_max: 16 }));
    let family = Family::Phi4Mm(Phi4Mm { tile_size: 448, patch_size: 14, tiles_max: 36 });
    check("phi4_direct", &family);
    check_csv("phi4_multimodal", "dynamic_hd_36", &family);
}

#[test]
fn kimi_k25() {
    let family = Family::KimiK25(KimiK25 {
        patch_size: 14,
        merge_size: 2,
        patches_max: 16_384,
        side_patches_max: 512,
        fixed_tokens: None,
    });
    check("kimi_k25", &family);
}

#[test]
fn minicpmv() {
    let family = Family::MiniCpmV(MiniCpmV {
        scale_resolution: 448,
        patch_size: 14,
        slices_max: 9,
        patches_per_token: 16,
    });
    check_csv("minicpmv4_6", "class_default", &family);
}
