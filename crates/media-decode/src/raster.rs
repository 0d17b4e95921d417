use crate::unfit::Unfit;

/// Pixels as stored in a file: rows from the top, three bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raster {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) rgb: Vec<u8>,
}

/// How a decoder's samples make up a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Samples {
    Gray,
    GrayAlpha,
    Rgb,
    /// With an alpha that engines lay on white.
    Rgba,
    /// With an alpha that engines don't look at.
    RgbIgnored,
}

impl Samples {
    const fn count(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::GrayAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba | Self::RgbIgnored => 4,
        }
    }
}

impl Raster {
    /// Makes RGB of 8-bit samples.
    pub(crate) fn new(
        (width, height): (usize, usize),
        samples: Samples,
        data: Vec<u8>,
    ) -> Result<Self, Unfit> {
        let pixels = width * height;
        if pixels.checked_mul(samples.count()) != Some(data.len()) {
            return Err(Unfit::broken("the decoder gave another number of samples"));
        }
        if samples == Samples::Rgb {
            return Ok(Self { width, height, rgb: data });
        }
        let mut rgb = Vec::with_capacity(pixels * 3);
        for pixel in data.chunks_exact(samples.count()) {
            match (samples, pixel) {
                (Samples::Gray, &[gray]) => rgb.extend([gray; 3]),
                (Samples::GrayAlpha, &[gray, alpha]) => rgb.extend([on_white(gray, alpha); 3]),
                (Samples::Rgba, &[red, green, blue, alpha]) => {
                    rgb.extend([red, green, blue].map(|channel| on_white(channel, alpha)));
                }
                (_, &[red, green, blue, ..]) => rgb.extend([red, green, blue]),
                _ => {}
            }
        }
        Ok(Self { width, height, rgb })
    }
}

/// Lays a channel on white, rounded as Pillow's `paste` with a mask does: (x + 128 + ((x + 128) >> 8)) >> 8 for x / 255.
fn on_white(channel: u8, alpha: u8) -> u8 {
    let (channel, alpha) = (u32::from(channel), u32::from(alpha));
    let sum = channel * alpha + 255 * (255 - alpha) + 128;
    u8::try_from((sum + (sum >> 8)) >> 8).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transparency_is_laid_on_white() {
        assert_eq!(
            (on_white(10, 255), on_white(10, 0), on_white(0, 128), on_white(200, 51)),
            (10, 255, 127, 244)
        );
        let raster =
            |samples, data: &[u8]| Raster::new((1, 1), samples, data.to_vec()).map(|raster| raster.rgb);
        assert_eq!(raster(Samples::Gray, &[7]), Ok(vec![7; 3]));
        assert_eq!(raster(Samples::GrayAlpha, &[7, 0]), Ok(vec![255; 3]));
        assert_eq!(raster(Samples::Rgba, &[1, 2, 3, 255]), Ok(vec![1, 2, 3]));
        assert_eq!(raster(Samples::RgbIgnored, &[1, 2, 3, 0]), Ok(vec![1, 2, 3]));
        assert!(raster(Samples::Rgb, &[1, 2]).is_err());
    }
}
