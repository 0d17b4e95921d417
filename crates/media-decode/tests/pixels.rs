//! Decoded pixels beside those that vLLM's loader has of the same files (`make_pixels.py`).
//!
//! What is decoded is equal to the last bit.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use media_decode::{Unfit, to_bitmap};
use proptest::prelude::{any, prop, proptest};
use serde::Deserialize;

const PIXELS_MAX: u64 = 1 << 24;

#[derive(Deserialize)]
struct Pixels {
    width: u32,
    height: u32,
    rgb: String,
}

/// How far decoded pixels are from the engine's.
#[derive(Debug, Default)]
struct Seen {
    files: u32,
    samples: u32,
    differing: u32,
    steps_max: u8,
}

fn images() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/images")
}

/// Reads a bitmap back: its size, and its pixels from the top.
fn read(bitmap: &[u8]) -> (u32, u32, Vec<u8>) {
    let word = |at: usize| u32::from_le_bytes(bitmap[at..at + 4].try_into().unwrap());
    let (width, height) = (word(18), word(22));
    assert_eq!((&bitmap[..2], word(2) as usize), (&b"BM"[..], bitmap.len()));
    let row_bytes = (width as usize * 3).next_multiple_of(4);
    let rows = bitmap[54..].chunks(row_bytes).rev();
    let pixels =
        rows.flat_map(|row| row[..width as usize * 3].chunks(3).flat_map(|bgr| [bgr[2], bgr[1], bgr[0]]));
    (width, height, pixels.collect())
}

#[test]
fn pixels_are_those_that_the_engine_would_have() {
    let golden = std::fs::read(images().join("pixels.json")).unwrap();
    let golden: BTreeMap<String, Pixels> = serde_json::from_slice(&golden).unwrap();
    let mut unfit: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut decoded: BTreeMap<&str, Seen> = BTreeMap::new();
    for (name, expected) in &golden {
        let bitmap = match to_bitmap(&std::fs::read(images().join(name)).unwrap(), PIXELS_MAX) {
            Ok(bitmap) => bitmap,
            Err(why) => {
                unfit.entry(why.as_str()).or_default().push(name.clone());
                continue;
            }
        };
        let (width, height, pixels) = read(&bitmap);
        assert_eq!((width, height), (expected.width, expected.height), "{name}");
        let expected = STANDARD.decode(&expected.rgb).unwrap();
        assert_eq!(pixels.len(), expected.len(), "{name}");
        let format = name.split('-').next().unwrap();
        let seen = decoded.entry(format).or_default();
        seen.files += 1;
        for (one, other) in pixels.iter().zip(&expected) {
            let steps = one.abs_diff(*other);
            seen.samples += 1;
            seen.differing += u32::from(steps > 0);
            seen.steps_max = seen.steps_max.max(steps);
        }
    }
    println!("decoded {decoded:#?}, handed over as they are {unfit:?}");
    for (format, seen) in &decoded {
        assert_eq!(seen.differing, 0, "{format}: {seen:?}");
    }
    let formats: Vec<_> = unfit["format"].iter().map(|name| name.split('-').next().unwrap()).collect();
    assert!(formats.iter().all(|format| ["avif", "bmp", "tiff"].contains(format)), "{formats:?}");
    let least = [("png", 30), ("webp", 15), ("gif", 2), ("jpeg", 41)];
    assert!(least.iter().all(|(format, files)| decoded[format].files >= *files));
}

#[test]
fn what_the_engine_refuses_is_not_mended() {
    let golden = std::fs::read(images().join("pixels.json")).unwrap();
    let golden: BTreeMap<String, Pixels> = serde_json::from_slice(&golden).unwrap();
    for entry in std::fs::read_dir(images()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !golden.contains_key(name) {
            assert!(to_bitmap(&std::fs::read(&path).unwrap(), PIXELS_MAX).is_err(), "{name}");
        }
    }
    for name in ["png-plain.png", "gif-plain.gif", "jpeg-plain.jpg", "webp-lossy.webp", "webp-lossless.webp"]
    {
        let file = std::fs::read(images().join(name)).unwrap();
        assert!(to_bitmap(&file, PIXELS_MAX).is_ok(), "{name}");
        assert!(to_bitmap(&file[..file.len() / 2], PIXELS_MAX).is_err(), "half of {name}");
    }
}

#[test]
fn the_limit_is_held_before_anything_is_decoded() {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(30_000_u32.to_be_bytes());
    png.extend(30_000_u32.to_be_bytes());
    png.extend(b"\x08\x02\0\0\0\0\0\0\0\0\0\0\0IDAT\0\0\0\0\0\0\0\0IEND\0\0\0\0");
    assert_eq!(
        to_bitmap(&png, PIXELS_MAX),
        Err(Unfit::Pixels { pixels: 900_000_000, pixels_max: PIXELS_MAX })
    );
}

proptest! {
    #[test]
    fn damaged_files_are_decoded_or_refused(
        file in prop::sample::select(vec!["png-palette.png", "gif-plain.gif", "webp-lossy.webp", "webp-lossless.webp", "png-alpha.png", "jpeg-plain.jpg", "jpeg-progressive.jpg"]),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = std::fs::read(images().join(file)).unwrap();
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(bitmap) = to_bitmap(&bytes, 1 << 20) {
            read(&bitmap);
        }
    }
}
