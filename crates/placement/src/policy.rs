//! How to choose among feasible holders.

use std::fmt;
use std::str::FromStr;

/// A way of choosing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The lowest predicted cost, media included.
    #[default]
    Kv,
    /// The lowest predicted cost, blind to media: overlap counts up to the first item, residency does not.
    KvText,
    /// The fewest active sequences, then the least prefill ahead.
    LeastLoaded,
    /// The less loaded of two drawn by seed.
    PowerOfTwo,
    /// Each in turn.
    RoundRobin,
    /// Drawn by seed.
    Random,
}

/// A policy name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy {name:?}, expected one of kv, kv-text, least-loaded, power-of-two, round-robin, random"
)]
pub struct UnknownPolicy {
    /// As given.
    pub name: String,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] =
        [Self::Kv, Self::KvText, Self::LeastLoaded, Self::PowerOfTwo, Self::RoundRobin, Self::Random];

    /// Returns the policy's name in headers, flags and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::KvText => "kv-text",
            Self::LeastLoaded => "least-loaded",
            Self::PowerOfTwo => "power-of-two",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.as_str() == name)
            .ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}
