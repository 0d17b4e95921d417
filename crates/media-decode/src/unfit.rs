/// Why a file is to be handed over as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its format is not decoded here: no decoder gives the very same pixels, or it is uncompressed already.
    #[error("a format that is not decoded here")]
    Format,
    /// It is larger than allowed.
    #[error("{pixels} pixels are more than {pixels_max}")]
    Pixels {
        /// Its size.
        pixels: u64,
        /// The limit.
        pixels_max: u64,
    },
    /// Its colours are such that other decoders convert them differently.
    #[error("colours that are not converted here")]
    Colours,
    /// Its frames are such that other decoders compose them differently.
    #[error("frames that are not composed here")]
    Frames,
    /// It found a bug in a decoder.
    #[error("a decoder panicked")]
    Panicked,
    /// It cannot be decoded.
    #[error("cannot be decoded: {reason}")]
    Broken {
        /// The decoder's words.
        reason: String,
    },
}

impl Unfit {
    pub(crate) fn broken(cause: impl std::fmt::Display) -> Self {
        Self::Broken { reason: cause.to_string() }
    }

    /// Returns the reason's name in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Pixels { .. } => "pixels",
            Self::Colours => "colours",
            Self::Frames => "frames",
            Self::Panicked => "panicked",
            Self::Broken { .. } => "broken",
        }
    }
}
