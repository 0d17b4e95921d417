//! Why a request is routed with less credit than its prompt deserves.

/// Why a prompt is not predicted to its end; its blocks count only up to the first thing not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// An image's size is not known.
    MediaUnsized,
    /// The name by which the engine will know an image is not known.
    MediaUnidentified,
    /// The model's way of expanding media is not known.
    MediaUnknownFamily,
    /// A medium that is not predicted: video, audio, embeddings.
    MediaUnsupported,
    /// The engine will refuse the image, or no count is predicted for its size.
    MediaRefused,
    /// The request changes how media are processed.
    MediaKwargs,
    /// The rendered prompt has fewer placeholders than the request has media.
    MediaUnplaced,
    /// The chat template is absent or could not be rendered here.
    Template,
    /// The tokeniser failed.
    Tokenizer,
    /// The engine will cut the prompt.
    Truncated,
    /// The prompt is longer than any worker's context.
    TooLong,
}

impl Fallback {
    /// All reasons, for metrics that must exist before they count.
    pub const ALL: [Self; 11] = [
        Self::MediaUnsized,
        Self::MediaUnidentified,
        Self::MediaUnknownFamily,
        Self::MediaUnsupported,
        Self::MediaRefused,
        Self::MediaKwargs,
        Self::MediaUnplaced,
        Self::Template,
        Self::Tokenizer,
        Self::Truncated,
        Self::TooLong,
    ];

    /// Returns the reason as headers and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MediaUnsized => "media-unsized",
            Self::MediaUnidentified => "media-unidentified",
            Self::MediaUnknownFamily => "media-unknown-family",
            Self::MediaUnsupported => "media-unsupported",
            Self::MediaRefused => "media-refused",
            Self::MediaKwargs => "media-kwargs",
            Self::MediaUnplaced => "media-unplaced",
            Self::Template => "template",
            Self::Tokenizer => "tokenizer",
            Self::Truncated => "truncated",
            Self::TooLong => "too-long",
        }
    }
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
