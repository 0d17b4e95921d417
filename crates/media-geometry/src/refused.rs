use crate::image_size::ImageSize;

/// Why no expansion is predicted for an image.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A side is zero.
    #[error("image {0} has no pixels")]
    Empty(ImageSize),
    /// The engine doesn't open images of so many pixels.
    #[error("image {size} has more than {limit} pixels")]
    TooManyPixels {
        /// The image.
        size: ImageSize,
        /// The largest number of pixels that the engine accepts.
        limit: u64,
    },
    /// The reference refuses images that are so much longer than wide, or wider than long.
    #[error("image {size} has an aspect ratio above {limit}")]
    AspectRatio {
        /// The image.
        size: ImageSize,
        /// The largest ratio that the reference accepts.
        limit: u32,
    },
    /// The reference fails on this size, or its answer is an accident that differs between releases.
    #[error("image {0} has a size that the reference does not treat predictably")]
    Unpredictable(ImageSize),
    /// The configuration asks for more tokens than any engine's context holds.
    #[error("image {size} would take {tokens} tokens, more than {limit}")]
    TooManyTokens {
        /// The image.
        size: ImageSize,
        /// The count by the family's formula.
        tokens: u64,
        /// The largest count that is predicted.
        limit: u64,
    },
}
