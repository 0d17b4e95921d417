use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, MemoryLimit};

use super::WORK_BYTES_MAX;
use crate::raster::{Raster, Samples};
use crate::unfit::Unfit;

/// Decodes the first frame, if it covers the screen.
pub(crate) fn decode(file: &[u8]) -> Result<Raster, Unfit> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    if let Some(bytes) = u64::try_from(WORK_BYTES_MAX).ok().and_then(NonZeroU64::new) {
        options.set_memory_limit(MemoryLimit::Bytes(bytes));
    }
    let mut decoder = options.read_info(file).map_err(Unfit::broken)?;
    let (width, height) = (decoder.width(), decoder.height());
    let frame = decoder.read_next_frame().map_err(Unfit::broken)?;
    let frame = frame.ok_or_else(|| Unfit::broken("no frame"))?;
    if (frame.left, frame.top, frame.width, frame.height) != (0, 0, width, height) {
        return Err(Unfit::Frames);
    }
    Raster::new((usize::from(width), usize::from(height)), Samples::Rgba, frame.buffer.to_vec())
}
