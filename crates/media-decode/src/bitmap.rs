use std::panic::{UnwindSafe, catch_unwind};

use media_probe::{Format, Orientation, Probe, probe_whole};

use crate::format;
use crate::raster::Raster;
use crate::unfit::Unfit;

/// Bytes of the file header and of the oldest header that all decoders read.
const HEADERS: usize = 54;

/// Decodes a file of at most `pixels_max` pixels into a BMP: 24 bits a pixel, rows from the bottom, turned as the image
/// is shown.
///
/// # Errors
/// Hand over the file as it is.
pub fn to_bitmap(file: &[u8], pixels_max: u64) -> Result<Vec<u8>, Unfit> {
    let (format, size, orientation) = match probe_whole(file) {
        Probe::Sized { format, width, height, orientation } => (format, (width, height), orientation),
        Probe::Malformed(malformed) => return Err(Unfit::broken(malformed)),
        Probe::Tentative { .. } | Probe::NeedMore { .. } | Probe::Unknown => return Err(Unfit::Format),
    };
    let pixels = u64::from(size.0) * u64::from(size.1);
    if pixels > pixels_max {
        return Err(Unfit::Pixels { pixels, pixels_max });
    }
    let stored = if orientation.swaps() { (size.1, size.0) } else { size };
    let raster = contained(|| decoded(format, file))?;
    let decoded = (u32::try_from(raster.width), u32::try_from(raster.height));
    if decoded != (Ok(stored.0), Ok(stored.1)) {
        return Err(Unfit::broken("header and pixels differ in size"));
    }
    written(&raster, size, orientation)
}

/// Makes a decoder's panic a reason.
fn contained<R>(decode: impl FnOnce() -> Result<R, Unfit> + UnwindSafe) -> Result<R, Unfit> {
    catch_unwind(decode).unwrap_or(Err(Unfit::Panicked))
}

fn decoded(format: Format, file: &[u8]) -> Result<Raster, Unfit> {
    match format {
        Format::Png => format::png(file),
        Format::Gif => format::gif(file),
        Format::Jpeg => format::jpeg(file),
        Format::WebP => format::webp(file),
        Format::Bmp | Format::Tiff | Format::Avif | Format::Heic => Err(Unfit::Format),
    }
}

fn written(raster: &Raster, (width, height): (u32, u32), orientation: Orientation) -> Result<Vec<u8>, Unfit> {
    let too_large = || Unfit::broken("too large for a bitmap");
    let (columns, rows) = (usize::try_from(width), usize::try_from(height));
    let (Ok(columns), Ok(rows)) = (columns, rows) else { return Err(too_large()) };
    let row_bytes = (columns * 3).next_multiple_of(4);
    let image_bytes = u32::try_from(row_bytes * rows).map_err(|_| too_large())?;
    let all = u32::try_from(HEADERS + row_bytes * rows).map_err(|_| too_large())?;
    let mut bitmap = Vec::with_capacity(HEADERS + row_bytes * rows);
    bitmap.extend(b"BM");
    for word in [all, 0, 54, 40, width, height, 1 | 24 << 16, 0, image_bytes, 0, 0, 0, 0] {
        bitmap.extend(word.to_le_bytes());
    }
    for row in (0..rows).rev() {
        write_row(&mut bitmap, raster, (row, columns), orientation);
        bitmap.resize(HEADERS + row_bytes * (rows - row), 0);
    }
    Ok(bitmap)
}

/// Appends a row of the image as shown, blue first.
fn write_row(
    bitmap: &mut Vec<u8>,
    raster: &Raster,
    (row, columns): (usize, usize),
    orientation: Orientation,
) {
    let (right, bottom) = (raster.width - 1, raster.height - 1);
    if orientation == Orientation::UPRIGHT {
        let start = row * raster.width * 3;
        let stored = raster.rgb.get(start..start + raster.width * 3).unwrap_or_default();
        for pixel in stored.as_chunks::<3>().0 {
            bitmap.extend([pixel[2], pixel[1], pixel[0]]);
        }
        return;
    }
    for column in 0..columns {
        let (x, y) = match orientation.get() {
            2 => (right - column, row),
            3 => (right - column, bottom - row),
            4 => (column, bottom - row),
            5 => (row, column),
            6 => (row, bottom - column),
            7 => (right - row, bottom - column),
            8 => (right - row, column),
            _ => (column, row),
        };
        let at = (y * raster.width + x) * 3;
        if let Some(&[red, green, blue]) = raster.rgb.get(at..at + 3) {
            bitmap.extend([blue, green, red]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_contained() {
        assert_eq!(contained(|| Ok(7)), Ok(7));
        assert_eq!(contained(|| -> Result<u8, Unfit> { panic!("on purpose") }), Err(Unfit::Panicked));
    }
}
