//! The goldens: every family × every size, errors included.

use std::collections::BTreeMap;
use std::path::Path;

use media_geometry::{Family, Geometry, ImageSize, QwenVl};

type Goldens = BTreeMap<String, BTreeMap<String, String>>;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/token-counts").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn goldens() -> Goldens {
    serde_json::from_str(&fixture("transformers.json")).unwrap()
}

fn size(text: &str) -> ImageSize {
    let (width, height) = text.split_once('x').unwrap();
    ImageSize::new(width.parse().unwrap(), height.parse().unwrap())
}

fn check(key: &str, family: Family) {
    let goldens = goldens();
    let geometry = Geometry::new(family).unwrap();
    let mut differences = Vec::new();
    for (text, expected) in &goldens[key] {
        let found = match geometry.expand(&[size(text)]).remove(0) {
            Ok(expansion) => expansion.placeholder_tokens.to_string(),
            Err(refused) => format!("ERR {refused}"),
        };
        let agree = if expected.starts_with("ERR") { found.starts_with("ERR") } else { found == *expected };
        if !agree {
            differences.push(format!("{text}: expected {expected}, found {found}"));
        }
    }
    assert!(differences.is_empty(), "{key}: {} differences\n{}", differences.len(), differences.join("\n"));
}

const fn qwen(patch_size: u32, min_pixels: u64, max_pixels: u64) -> Family {
    Family::QwenVl(QwenVl { patch_size, merge_size: 2, min_pixels, max_pixels })
}

#[test]
fn qwen_vl() {
    check("qwen2_vl", qwen(14, 3136, 12_845_056));
    check("qwen2_5_vl", qwen(14, 3136, 12_845_056));
    check("qwen3_vl", qwen(16, 65_536, 16_777_216));
}
