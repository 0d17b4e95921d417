//! Decoding: a file becomes a bitmap of the announced size, or is handed over as it is. Panics end the run here, although
//! they are contained elsewhere.

#![no_main]

use libfuzzer_sys::fuzz_target;
use media_decode::{Unfit, to_bitmap};
use media_probe::{Probe, probe_whole};

const PIXELS_MAX: u64 = 1 << 18;

fuzz_target!(|file: &[u8]| {
    match to_bitmap(file, PIXELS_MAX) {
        Ok(bitmap) => {
            let Probe::Sized { width, height, .. } = probe_whole(file) else { panic!("decoded without a size") };
            let row_bytes = u64::from(width).strict_mul(3).next_multiple_of(4);
            assert_eq!(bitmap.len() as u64, 54 + row_bytes * u64::from(height));
        }
        Err(unfit) => assert_ne!(unfit, Unfit::Panicked),
    }
});
