//! vLLM's own identity of an image, for requests that give none (recipe of 0.31 and later).
//!
//! ```text
//! id   = blake3( F("image") ‖ item ‖ F("model_id") ‖ 03 ‖ F(model path) ) in hex          F(x) = len u64 LE ‖ x
//! item = 03 ‖ F("image") ‖ 03 ‖ F(file)                                                   an RGB file
//!      = 03 ‖ F("image") ‖ 02 ‖ 2 ‖ F("io_config") ‖ config ‖ F("data") ‖ 03 ‖ F(file)    any other
//! config = 02 ‖ 2 ‖ F("image_mode") ‖ 03 ‖ F("RGB") ‖ F("rgba_background_color") ‖ 01 ‖ 3 ‖ (03 ‖ F(255 i64 LE))×3
//! ```
//! Counts are u64 LE. The tags 01, 02 and 03 stand for a sequence, a mapping and a leaf.

const SEQUENCE: u8 = 1;
const MAPPING: u8 = 2;
const LEAF: u8 = 3;

/// Names an image file as vLLM does that serves the model at `model_path`.
#[must_use]
pub(crate) fn native_id(file: &[u8], model_path: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    framed(&mut hasher, b"image");
    hasher.update(&[LEAF]);
    framed(&mut hasher, b"image");
    if is_rgb(file) {
        leaf(&mut hasher, file);
    } else {
        container(&mut hasher, MAPPING, 2);
        framed(&mut hasher, b"io_config");
        container(&mut hasher, MAPPING, 2);
        framed(&mut hasher, b"image_mode");
        leaf(&mut hasher, b"RGB");
        framed(&mut hasher, b"rgba_background_color");
        container(&mut hasher, SEQUENCE, 3);
        for _ in 0..3 {
            leaf(&mut hasher, &255_i64.to_le_bytes());
        }
        framed(&mut hasher, b"data");
        leaf(&mut hasher, file);
    }
    framed(&mut hasher, b"model_id");
    leaf(&mut hasher, model_path.as_bytes());
    hasher.finalize().to_hex().to_string()
}

fn framed(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn leaf(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&[LEAF]);
    framed(hasher, bytes);
}

fn container(hasher: &mut blake3::Hasher, tag: u8, members: u64) {
    hasher.update(&[tag]);
    hasher.update(&members.to_le_bytes());
}

/// Says whether Pillow opens the file in mode RGB, so that vLLM converts nothing.
#[must_use]
pub(crate) fn is_rgb(file: &[u8]) -> bool {
    if file.starts_with(b"\x89PNG") {
        // Colour type 2 in 8 or 16 bits without a transparent colour is RGB.
        return file.get(25) == Some(&2);
    }
    if file.starts_with(b"\xff\xd8") {
        return jpeg_components(file) == Some(3);
    }
    if file.get(8..12) == Some(b"WEBP") {
        return match file.get(12..16) {
            Some(b"VP8X") => file.get(20).is_some_and(|flags| flags & 0x10 == 0),
            Some(b"VP8L") => file.get(24).is_some_and(|bits| bits & 0x10 == 0),
            _ => true,
        };
    }
    if file.starts_with(b"BM") {
        // The oldest header, of 12 bytes, has its depth 4 bytes earlier.
        let depth = if file.get(14) == Some(&12) { file.get(24..26) } else { file.get(28..30) };
        return matches!(depth, Some([24 | 32 | 16, 0]));
    }
    if file.get(4..8) == Some(b"ftyp") {
        return !file.windows(ALPHA_ITEM.len()).take(AVIF_HEADER_BYTES).any(|window| window == ALPHA_ITEM);
    }
    // Palettes and grey scales of TIFF are not told apart.
    file.starts_with(b"II") || file.starts_with(b"MM")
}

/// Marks the auxiliary image that holds an AVIF's transparency.
const ALPHA_ITEM: &[u8] = b":auxiliary:alpha";
const AVIF_HEADER_BYTES: usize = 4096;

/// Reads the number of components from a JPEG's frame header.
fn jpeg_components(file: &[u8]) -> Option<u8> {
    let mut at = 2;
    loop {
        let &[mark, kind] = file.get(at..at + 2)? else { return None };
        if mark != 0xff {
            return None;
        }
        if kind == 0xff {
            at += 1;
            continue;
        }
        if matches!(kind, 0x01 | 0xd0..=0xd8) {
            at += 2;
            continue;
        }
        if matches!(kind, 0xc0..=0xcf) && !matches!(kind, 0xc4 | 0xc8 | 0xcc) {
            return file.get(at + 9).copied();
        }
        let &[high, low] = file.get(at + 2..at + 4)? else { return None };
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
    }
}
