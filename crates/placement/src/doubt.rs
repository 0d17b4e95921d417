//! Why a holder's blocks count less than the index says.

/// Why predictions for a holder are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// They kept failing.
    Withdrawn,
    /// Its engine turns requests into tokens by other files or options.
    OtherRendering,
}

impl Doubt {
    /// Returns the word that answers and metrics use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::OtherRendering => "other-rendering",
        }
    }
}
