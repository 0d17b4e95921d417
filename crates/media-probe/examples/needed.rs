//! Says how much of an image's beginning must be read to know its size: `needed FILE…`.

#![expect(clippy::print_stdout, reason = "what it says is what it is for")]

use media_probe::{Probe, probe, probe_whole};

fn main() -> std::io::Result<()> {
    for file in std::env::args().skip(1) {
        let bytes = std::fs::read(&file)?;
        println!("{file}: {} of {} bytes: {:?}", needed(&bytes), bytes.len(), probe_whole(&bytes));
    }
    Ok(())
}

/// Reads on as long as that can tell more, but not behind the image data of a file that announces nothing there.
fn needed(file: &[u8]) -> usize {
    let mut len = 0;
    loop {
        match probe(file.get(..len).unwrap_or(file)) {
            Probe::Tentative { behind_pixels: true, .. }
            | Probe::Sized { .. }
            | Probe::Unknown
            | Probe::Malformed(_) => return len,
            Probe::NeedMore { at_least_bytes } | Probe::Tentative { at_least_bytes, .. } => {
                if len == file.len() {
                    return len;
                }
                len = usize::try_from(at_least_bytes).unwrap_or(usize::MAX).min(file.len());
            }
        }
    }
}
