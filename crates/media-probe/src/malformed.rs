/// Why an image's header can't be read; engines refuse such a file too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    /// The file ends within its header.
    #[error("file ends within its header")]
    Truncated,
    /// A width or height of zero is declared, or one beyond 32 bits.
    #[error("declared size has no pixels or too many")]
    Size,
    /// A part of the header has a form that its format forbids.
    #[error("{0} is not well formed")]
    Part(&'static str),
    /// The format's variant is one that engines don't open.
    #[error("{0} is not supported by engines")]
    Unsupported(&'static str),
}
