//! Image headers: the first byte chooses the format, whose signature is put in front unless it is there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use media_probe::{Probe, probe, probe_whole};

const SIGNATURES: [&[u8]; 8] = [
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"RIFF\0\0\0\0WEBP",
    b"GIF89a",
    b"BM",
    b"II\x2a\0",
    b"\0\0\0\x18ftypavif",
    b"\0\0\0\x18ftypheic",
];

fn sides(probe: Probe) -> Option<(u32, u32)> {
    match probe {
        Probe::Sized { width, height, .. } | Probe::Tentative { width, height, .. } => Some((width, height)),
        Probe::NeedMore { .. } | Probe::Unknown | Probe::Malformed(_) => None,
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((format, data)) = input.split_first() else { return };
    let signature = SIGNATURES[usize::from(*format) % SIGNATURES.len()];
    let keep = |at: usize| signature[at] == 0 && (4..8).contains(&at);
    let has =
        data.len() >= signature.len() && (0..signature.len()).all(|at| keep(at) || data[at] == signature[at]);
    let file = if has { data.to_vec() } else { [signature, data].concat() };

    let whole = probe_whole(&file);
    assert!(!matches!(whole, Probe::NeedMore { .. } | Probe::Tentative { .. }), "{whole:?}");
    let mut settled = None;
    for len in [file.len() / 4, file.len() / 2, file.len() * 3 / 4, file.len()] {
        let answer = probe(&file[..len]);
        if let Probe::NeedMore { at_least_bytes } | Probe::Tentative { at_least_bytes, .. } = answer {
            assert!(at_least_bytes > len as u64, "{answer:?} of {len}");
        }
        if let (Some(before), Some(now)) = (settled, sides(answer)) {
            assert_eq!(before, now, "a longer prefix gives another size");
        }
        if matches!(answer, Probe::Sized { .. }) {
            settled = sides(answer);
        }
        if let (Some((a, b)), Some((c, d))) = (sides(answer), sides(whole)) {
            let same = (a, b) == (c, d);
            let turned = (a, b) == (d, c) && matches!(answer, Probe::Tentative { .. });
            assert!(same || turned, "{answer:?} of {len}, {whole:?} of the whole file");
        }
    }
});
