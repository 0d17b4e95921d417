//! The corpus in `tests/fixtures/images`, sized as an engine sizes it (golden by Pillow).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use media_probe::{Format, Probe, probe, probe_whole};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    images: BTreeMap<String, Seen>,
}

#[derive(Deserialize)]
struct Seen {
    format: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/images")
}

fn corpus() -> Vec<(String, Vec<u8>, Seen)> {
    let golden: Golden =
        serde_json::from_slice(&std::fs::read(directory().join("golden.json")).unwrap()).unwrap();
    let read = |name: &str| std::fs::read(directory().join(name)).unwrap();
    golden.images.into_iter().map(|(name, seen)| (name.clone(), read(&name), seen)).collect()
}

const fn pillow_name(format: Format) -> &'static str {
    match format {
        Format::Png => "PNG",
        Format::Jpeg => "JPEG",
        Format::WebP => "WEBP",
        Format::Gif => "GIF",
        Format::Bmp => "BMP",
        Format::Tiff => "TIFF",
        Format::Avif => "AVIF",
        Format::Heic => "HEIC",
    }
}

#[test]
fn whole_files_agree_with_pillow() {
    let mut differences = Vec::new();
    for (name, file, seen) in corpus() {
        let agree = match probe_whole(&file) {
            Probe::Sized { format, width, height, .. } => {
                (Some(pillow_name(format)), Some(width), Some(height))
                    == (seen.format.as_deref(), seen.width, seen.height)
            }
            Probe::Unknown | Probe::Malformed(_) => seen.format.is_none(),
            Probe::NeedMore { .. } | Probe::Tentative { .. } => false,
        };
        if !agree {
            let expected = (seen.format, seen.width, seen.height);
            differences.push(format!("{name}: {:?}, expected {expected:?}", probe_whole(&file)));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn no_prefix_contradicts_the_whole_file() {
    for (name, file, _) in corpus() {
        let whole = probe_whole(&file);
        for len in 0..=file.len() {
            match probe(&file[..len]) {
                Probe::NeedMore { at_least_bytes } | Probe::Tentative { at_least_bytes, .. } => {
                    assert!(at_least_bytes > len as u64, "{name} at {len}");
                }
                // What turns a square image may not have been reached.
                Probe::Sized { format, width, height, .. } if width == height => assert!(
                    matches!(whole, Probe::Sized { format: f, width: w, .. } if (f, w) == (format, width)),
                    "{name} at {len}"
                ),
                last @ (Probe::Sized { .. } | Probe::Unknown | Probe::Malformed(_)) => {
                    assert_eq!(last, whole, "{name} at {len}");
                }
            }
        }
    }
}

#[test]
fn reading_what_is_asked_for_ends_in_an_answer() {
    for (name, file, _) in corpus() {
        let (mut len, mut reads) = (0, 0);
        while let Probe::NeedMore { at_least_bytes } | Probe::Tentative { at_least_bytes, .. } =
            probe(&file[..len])
        {
            len = usize::try_from(at_least_bytes).unwrap();
            reads += 1;
            assert!(reads < 700, "{name}");
            if len > file.len() {
                break;
            }
        }
    }
}
