//! Decodes files: `bitmap FILE…` writes `FILE.bmp` beside each, and says how long it took, or why it is not decoded.

#![expect(clippy::print_stdout, reason = "what it says is what it is for")]
#![expect(clippy::disallowed_types, reason = "it measures")]

use std::time::Instant;

/// No larger image is decoded.
const PIXELS_MAX: u64 = 1 << 28;
/// Decodes of one file, of which the fastest counts: others share the machine.
const TIMES: u32 = 20;

fn main() -> std::io::Result<()> {
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file)?;
        let mut fastest = f64::INFINITY;
        for _ in 0..TIMES {
            let began = Instant::now();
            std::hint::black_box(media_decode::to_bitmap(&bytes, PIXELS_MAX).ok());
            fastest = fastest.min(began.elapsed().as_secs_f64());
        }
        match media_decode::to_bitmap(&bytes, PIXELS_MAX) {
            Ok(bitmap) => {
                println!("{file}: {} bytes become {} in {:.2} ms", bytes.len(), bitmap.len(), fastest * 1e3);
                std::fs::write(format!("{file}.bmp"), bitmap)?;
            }
            Err(why) => println!("{file}: {why}"),
        }
    }
    Ok(())
}
