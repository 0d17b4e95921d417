use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use super::WORK_BYTES_MAX;
use crate::raster::{Raster, Samples};
use crate::unfit::Unfit;

/// Decodes the default image of a file with up to 8 bits a channel.
pub(crate) fn decode(file: &[u8]) -> Result<Raster, Unfit> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), Limits { bytes: WORK_BYTES_MAX });
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(Unfit::broken)?;
    if reader.info().bit_depth == BitDepth::Sixteen {
        return Err(Unfit::Colours);
    }
    let stored = reader.info().color_type;
    let samples = match (stored, reader.output_color_type().0) {
        // Pillow has such a file in mode RGB, so that engines don't look at its transparent colour.
        (ColorType::Rgb, ColorType::Rgba) => Samples::RgbIgnored,
        (_, ColorType::Grayscale) => Samples::Gray,
        (_, ColorType::GrayscaleAlpha) => Samples::GrayAlpha,
        (_, ColorType::Rgb) => Samples::Rgb,
        (_, ColorType::Rgba) => Samples::Rgba,
        (_, ColorType::Indexed) => return Err(Unfit::Colours),
    };
    let size = reader.info().size();
    let bytes = reader.output_buffer_size().ok_or_else(|| Unfit::broken("too large"))?;
    let mut data = vec![0; bytes];
    let frame = reader.next_frame(&mut data).map_err(Unfit::broken)?;
    data.truncate(frame.buffer_size());
    if (frame.width, frame.height) != size {
        return Err(Unfit::Frames);
    }
    let side = |side: u32| usize::try_from(side).map_err(Unfit::broken);
    Raster::new((side(size.0)?, side(size.1)?), samples, data)
}
