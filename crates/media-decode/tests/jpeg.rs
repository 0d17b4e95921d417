//! JPEGs beside the pixels that vLLM's loader has of them (`tests/fixtures/jpeg/make.py`).
//!
//! What keeps to the rules is decoded, and equal to the last bit; what does not is handed over as it is.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use media_decode::to_bitmap;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

const PIXELS_MAX: u64 = 1 << 24;

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Pixels {
    width: u32,
    height: u32,
    sha256: String,
}

fn file(name: &str) -> Vec<u8> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/jpeg");
    std::fs::read(directory.join(name)).unwrap()
}

fn read(bitmap: &[u8]) -> Pixels {
    let word = |at: usize| u32::from_le_bytes(bitmap[at..at + 4].try_into().unwrap());
    let (width, height) = (word(18), word(22));
    let mut hash = Sha256::new();
    for row in bitmap[54..].chunks((width as usize * 3).next_multiple_of(4)).rev() {
        for bgr in row[..width as usize * 3].chunks(3) {
            hash.update([bgr[2], bgr[1], bgr[0]]);
        }
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Pixels { width, height, sha256 }
}

#[test]
fn what_keeps_to_the_rules_has_the_pixels_that_the_engine_would_have() {
    let golden: BTreeMap<String, Pixels> = serde_json::from_slice(&file("pixels.json")).unwrap();
    let mut decoded = 0;
    for (name, expected) in golden.iter().filter(|(name, _)| !name.starts_with("odd-")) {
        assert_eq!(
            to_bitmap(&file(name), PIXELS_MAX).map(|bitmap| read(&bitmap)).as_ref(),
            Ok(expected),
            "{name}"
        );
        decoded += 1;
    }
    assert_eq!(decoded, 90);
}

#[test]
fn what_breaks_a_rule_is_handed_over_as_it_is() {
    for (name, reason) in [
        ("arithmetic", "colours"),
        ("cmyk", "colours"),
        ("lossless", "colours"),
        ("twelve-bits", "broken"),
        ("first-coefficients-only-scans", "broken"),
        ("without-refinement-scans", "broken"),
        ("scans-65", "broken"),
        ("half", "broken"),
        ("without-end", "broken"),
        ("two-frames", "broken"),
        ("sampling-0", "broken"),
        ("marker-unknown", "broken"),
        ("huffman-counts", "broken"),
        ("huffman-symbol", "broken"),
        ("quantisation-length", "broken"),
        ("restart-missing", "broken"),
        ("restart-out-of-order", "broken"),
        ("restart-unannounced", "broken"),
        ("scan-bits", "broken"),
        ("scan-of-a-stranger", "broken"),
    ] {
        let unfit = to_bitmap(&file(&format!("odd-{name}.jpg")), PIXELS_MAX).unwrap_err();
        assert_eq!(unfit.as_str(), reason, "{name}: {unfit}");
    }
}

#[test]
fn no_prefix_is_decoded() {
    for name in ["sequential-420-17x33-q1.jpg", "progressive-420-17x33-q20.jpg", "sequential-restarts.jpg"] {
        let whole = file(name);
        for len in 0..whole.len() {
            assert!(to_bitmap(&whole[..len], PIXELS_MAX).is_err(), "{len} bytes of {name}");
        }
    }
}
