//! Decodes files: `bitmap FILE…` writes `FILE.bmp` beside each, and says what is not decoded.

#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

/// No larger image is decoded.
const PIXELS_MAX: u64 = 1 << 28;

fn main() -> std::io::Result<()> {
    for file in std::env::args().skip(1) {
        match media_decode::to_bitmap(&std::fs::read(&file)?, PIXELS_MAX) {
            Ok(bitmap) => std::fs::write(format!("{file}.bmp"), bitmap)?,
            Err(why) => println!("{file}: {why}"),
        }
    }
    Ok(())
}
