//! Bytes from strangers: no panic, no growth, bounded time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use media_probe::{Format, Malformed, Probe, probe, probe_whole};
use proptest::prelude::*;

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend(width.to_be_bytes());
    file.extend(height.to_be_bytes());
    file.extend(b"\x08\x02\0\0\0\0\0\0\0");
    file
}

fn jpeg(segments: &[(u8, &[u8])]) -> Vec<u8> {
    let mut file = b"\xff\xd8".to_vec();
    for (marker, data) in segments {
        file.extend([0xff, *marker]);
        file.extend(u16::try_from(data.len() + 2).unwrap().to_be_bytes());
        file.extend(*data);
    }
    file
}

const FRAME: &[u8] = &[8, 0, 17, 0, 23, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0];

#[test]
fn a_header_that_declares_gigapixels_costs_nothing() {
    let file = png(30_000, 30_000);
    assert!(matches!(probe(&file), Probe::Sized { width: 30_000, height: 30_000, .. }));
    assert!(matches!(
        probe(&png(u32::MAX, 1)),
        Probe::Tentative { width: u32::MAX, height: 1, at_least_bytes, .. } if at_least_bytes < 64
    ));
    assert_eq!(probe(&png(0, 5)), Probe::Malformed(Malformed::Size));
}

#[test]
fn a_text_that_inflates_without_end_is_refused() {
    let bomb = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b'0'; 32 << 20], 9);
    let mut file = png(23, 17);
    let data = [b"Raw profile type exif\0\0".as_slice(), &bomb].concat();
    for _ in 0..4 {
        file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        file.extend(b"zTXt");
        file.extend(&data);
        file.extend([0; 4]);
    }
    file.extend(b"\0\0\0\0IEND\0\0\0\0");
    assert_eq!(probe_whole(&file), Probe::Malformed(Malformed::Unsupported("PNG text above 1 MiB")));
}

#[test]
fn a_jpeg_with_a_200_kb_profile_asks_for_it_segment_by_segment() {
    let profile = vec![7; 65_000];
    let exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let file = jpeg(&[
        (0xe2, &profile),
        (0xe2, &profile),
        (0xe2, &profile),
        (0xe1, exif),
        (0xc0, FRAME),
        (0xda, &[3, 1, 0, 2, 0x11, 3, 0x11, 0, 0x3f, 0]),
    ]);
    let (mut len, mut reads) = (16 << 10, 0);
    while let Probe::NeedMore { at_least_bytes } = probe(&file[..len]) {
        len = usize::try_from(at_least_bytes).unwrap().next_power_of_two().min(file.len());
        reads += 1;
    }
    assert!(matches!(probe(&file[..len]), Probe::Sized { width: 17, height: 23, .. }));
    assert!(reads <= 4, "{reads} reads");
}

#[test]
fn a_webp_says_that_its_orientation_is_still_to_come() {
    let mut file = b"RIFF\0\0\x20\0WEBPVP8X\x0a\0\0\0\x08\0\0\0\x16\0\0\x10\0\0".to_vec();
    file.extend(b"VP8 \0\0\x10\0");
    let expected = Probe::Tentative {
        format: Format::WebP,
        width: 23,
        height: 17,
        at_least_bytes: 38 + 0x0010_0000 + 4,
        behind_pixels: false,
    };
    assert_eq!(probe(&file), expected);
}

fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [&len.to_be_bytes(), name.as_slice(), data, &[0; 4]].concat()
}

#[test]
fn a_png_says_whether_only_its_end_can_turn_it() {
    let header = chunk(b"IHDR", b"\0\0\0\x17\0\0\0\x11\x08\x02\0\0\0");
    // A profile larger than any first read, then what turns the image.
    let metadata = [chunk(b"iCCP", &[7; 40_000]), chunk(b"eXIf", EXIF_6)].concat();
    let before = [b"\x89PNG\r\n\x1a\n".as_slice(), &header, &metadata].concat();
    let file = [&before[..], &chunk(b"IDAT", &[7; 100_000])].concat();
    for len in 24..file.len() {
        let expected = match len {
            _ if len < before.len() - 4 => (23, 17, false),
            _ if len < before.len() + 8 => (17, 23, false),
            _ => (17, 23, true),
        };
        let Probe::Tentative { width, height, behind_pixels, .. } = probe(&file[..len]) else {
            panic!("{:?} at {len}", probe(&file[..len]));
        };
        assert_eq!((width, height, behind_pixels), expected, "{len}");
    }
}

/// A TIFF directory whose one entry is orientation 6.
const EXIF_6: &[u8] = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";

fn boxed(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(data.len() + 8).unwrap().to_be_bytes().to_vec();
    out.extend(name);
    out.extend(data);
    out
}

/// A HEIC header by ISO/IEC 23008-12: a thumbnail's size first, the primary item's second.
fn heic(turns: u8, version: u8) -> Vec<u8> {
    let ispe =
        |w: u32, h: u32| boxed(b"ispe", &[[0; 4].as_slice(), &w.to_be_bytes(), &h.to_be_bytes()].concat());
    let ipco = boxed(b"ipco", &[ispe(8, 6), ispe(23, 17), boxed(b"irot", &[turns])].concat());
    let id = |id: u8| if version == 0 { vec![0, id] } else { vec![0, 0, 0, id] };
    let ipma =
        [vec![version, 0, 0, 0, 0, 0, 0, 2], id(1), vec![1, 0x81], id(2), vec![2, 0x82, 0x83]].concat();
    let iprp = boxed(b"iprp", &[ipco, boxed(b"ipma", &ipma)].concat());
    let pitm = boxed(b"pitm", &[0, 0, 0, 0, 0, 2]);
    let meta = boxed(b"meta", &[vec![0; 4], boxed(b"hdlr", &[0; 24]), pitm, iprp].concat());
    [boxed(b"ftyp", b"heic\0\0\0\0mif1heic"), boxed(b"free", &[0; 40]), meta].concat()
}

#[test]
fn heic_takes_the_primary_items_properties() {
    for (turns, version, width, height) in [(0, 0, 23, 17), (1, 0, 17, 23), (2, 1, 23, 17), (3, 1, 17, 23)] {
        let found = probe(&heic(turns, version));
        let Probe::Sized { width: w, height: h, .. } = found else { panic!("{found:?}") };
        assert_eq!((w, h), (width, height), "{turns} quarter turns");
    }
}

#[test]
fn a_general_brand_is_resolved_by_the_compatible_ones() {
    let with = |brands: &[u8]| {
        let file = heic(1, 0);
        let rest = &file[24..];
        [boxed(b"ftyp", brands), rest.to_vec()].concat()
    };
    for (brands, expected) in [
        (b"mif1\0\0\0\0mif1heic".as_slice(), Some(Format::Heic)),
        (b"mif1\0\0\0\0mif1miafavif", Some(Format::Avif)),
        (b"mif1\0\0\0\0mif1", None),
        (b"isom\0\0\0\0heic", None),
    ] {
        let file = with(brands);
        let found = probe(&file);
        match expected {
            Some(wanted) => {
                assert!(
                    matches!(found, Probe::Sized { format, width: 17, height: 23, .. } if format == wanted)
                );
                assert_eq!(probe(&file[..14]), Probe::NeedMore { at_least_bytes: 20 });
            }
            None => assert_eq!(found, Probe::Unknown),
        }
    }
}

fn seeds() -> impl Strategy<Value = Vec<u8>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/images");
    let mut files: Vec<Vec<u8>> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .filter(|file| file.len() < 2000)
        .collect();
    files.sort();
    files.push(heic(1, 0));
    proptest::sample::select(files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn damaged_files_never_panic_and_always_ask_for_more_than_they_have(
        mut file in seeds(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let prefix = &file[..cut.index(file.len() + 1)];
        match probe(prefix) {
            Probe::NeedMore { at_least_bytes } | Probe::Tentative { at_least_bytes, .. } => {
                prop_assert!(at_least_bytes > prefix.len() as u64);
            }
            Probe::Sized { width, height, .. } => prop_assert!(width > 0 && height > 0, "{width}x{height}"),
            Probe::Unknown | Probe::Malformed(_) => {}
        }
        let whole = probe_whole(&file);
        let open = matches!(whole, Probe::NeedMore { .. } | Probe::Tentative { .. });
        prop_assert!(!open, "{whole:?}");
    }
}

/// Values of a directory that are more than the whole file are skipped, which a prefix cannot know yet.
#[test]
fn a_prefix_waits_where_values_may_be_more_than_the_file_has() {
    const PACKET: [u8; 24] = *b"<x tiff:Orientation=\"6\">";
    let entries: [(u16, u16, u32, u32); 4] =
        [(256, 4, 1, 9), (257, 4, 1, 5), (277, 3, 40, 0), (700, 1, 24, 62)];
    let mut file = b"II\x2a\0\x08\0\0\0\x04\0".to_vec();
    for (tag, kind, count, value) in entries {
        file.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        file.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    file.extend([0; 4]);
    file.extend(PACKET);
    let prefix = file.len();
    file.extend([0; 10]);
    assert_eq!(probe(&file[..prefix]), Probe::NeedMore { at_least_bytes: 80 + 24 });
    let Probe::Sized { width, height, .. } = probe_whole(&file) else { panic!("{:?}", probe_whole(&file)) };
    assert_eq!(
        (width, height),
        (9, 5),
        "the packet is skipped: {} bytes are less than all values",
        file.len()
    );
    file.extend([0; 40]);
    let Probe::Sized { width, height, .. } = probe(&file) else { panic!("{:?}", probe(&file)) };
    assert_eq!((width, height), (5, 9), "the packet counts");
}
