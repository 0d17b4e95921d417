mod outline;
mod tables;

use libjpeg_turbo_rs::{DecodeLimits, Decoder, PixelFormat};

use self::outline::{Outline, SCANS_MAX};
use super::WORK_BYTES_MAX;
use crate::raster::{Raster, Samples};
use crate::unfit::Unfit;

/// Decodes a file that keeps to the rules, gray or of three components.
pub(crate) fn decode(file: &[u8]) -> Result<Raster, Unfit> {
    let (format, samples) = match Outline::read(file)?.components {
        1 => (PixelFormat::Grayscale, Samples::Gray),
        _ => (PixelFormat::Rgb, Samples::Rgb),
    };
    let memory_max = u64::try_from(WORK_BYTES_MAX).ok();
    let limits = DecodeLimits { max_scans: SCANS_MAX, max_memory: memory_max, ..DecodeLimits::default() };
    let decoder = Decoder::new_with_limits(file, limits).map_err(Unfit::broken)?;
    let decoder = decoder.with_output_format(format).with_stop_on_warning(true);
    let image = decoder.decode_image().map_err(Unfit::broken)?;
    Raster::new((image.width, image.height), samples, image.data)
}
