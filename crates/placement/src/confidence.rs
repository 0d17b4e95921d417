//! How far a prediction is believed.

use std::fmt;

/// How a prompt is known; ordered from what is known least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Only up to something not understood: nothing behind it counts.
    #[default]
    Unknown,
    /// To its end, on what engines were seen to do.
    Learned,
    /// To its end, by computing what engines compute.
    Exact,
}

impl Confidence {
    /// Returns the word that answers use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Learned => "learned",
            Self::Exact => "exact",
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
