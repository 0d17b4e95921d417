use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::raster::{Raster, Samples};
use crate::unfit::Unfit;

/// Longest side that the format can have.
const SIDE_MAX: usize = 65_535;

/// Decodes gray and three-component files; strictly, since engines refuse what is cut short.
pub(crate) fn decode(file: &[u8]) -> Result<Raster, Unfit> {
    let options =
        DecoderOptions::default().set_strict_mode(true).set_max_width(SIDE_MAX).set_max_height(SIDE_MAX);
    let mut headers = JpegDecoder::new_with_options(ZCursor::new(file), options);
    headers.decode_headers().map_err(Unfit::broken)?;
    let info = headers.info().ok_or_else(|| Unfit::broken("no header"))?;
    let (samples, colours) = match info.components {
        1 => (Samples::Gray, ColorSpace::Luma),
        3 => (Samples::Rgb, ColorSpace::RGB),
        _ => return Err(Unfit::Colours),
    };
    let options = options.jpeg_set_out_colorspace(colours);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let data = decoder.decode().map_err(Unfit::broken)?;
    Raster::new((usize::from(info.width), usize::from(info.height)), samples, data)
}
