use std::io::Cursor;

use image_webp::WebPDecoder;

use super::WORK_BYTES_MAX;
use crate::raster::{Raster, Samples};
use crate::unfit::Unfit;

/// Decodes a still image.
pub(crate) fn decode(file: &[u8]) -> Result<Raster, Unfit> {
    let mut decoder = WebPDecoder::new(Cursor::new(file)).map_err(Unfit::broken)?;
    decoder.set_memory_limit(WORK_BYTES_MAX);
    if decoder.is_animated() {
        return Err(Unfit::Frames);
    }
    let samples = if decoder.has_alpha() { Samples::Rgba } else { Samples::Rgb };
    let (width, height) = decoder.dimensions();
    let bytes = decoder.output_buffer_size().ok_or_else(|| Unfit::broken("too large"))?;
    let mut data = vec![0; bytes];
    decoder.read_image(&mut data).map_err(Unfit::broken)?;
    let side = |side: u32| usize::try_from(side).map_err(Unfit::broken);
    Raster::new((side(width)?, side(height)?), samples, data)
}
