//! Why items are not known, and for how long that is believed.

use std::time::Duration;

use ports::media_source;

use crate::preprocessor;

/// Why an item is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The origin did not give it.
    #[error(transparent)]
    Source(#[from] media_source::Error),
    /// It could not be hashed for want of a thread.
    #[error(transparent)]
    Pool(#[from] preprocessor::Error),
    /// What came is no image.
    #[error("the bytes are no image of a known format: {reason}")]
    NotAnImage {
        /// What they are instead.
        reason: String,
    },
}

/// Why an id's bytes cannot be had any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// They did not come from here, or too long ago.
    #[error("no such item is known")]
    Unknown,
    /// The origin has other bytes now.
    #[error("the origin has other bytes by now")]
    Changed,
    /// The origin does not give them.
    #[error(transparent)]
    Origin(#[from] Error),
}

impl Error {
    /// For how long it is not asked about again, where an origin's refusal is believed for `base`: what may pass by
    /// itself for half as long, what lies in the URL or the bytes six times as long.
    pub(crate) fn keep(&self, base: Duration) -> Duration {
        match self {
            Self::Source(
                media_source::Error::Unresolved { .. }
                | media_source::Error::Unreachable { .. }
                | media_source::Error::Timeout { .. }
                | media_source::Error::Busy { .. }
                | media_source::Error::NoRoom(_)
                | media_source::Error::Status { status: 408 | 425 | 429 | 500.. },
            ) => base / 2,
            Self::Source(
                media_source::Error::Denied { .. }
                | media_source::Error::Status { .. }
                | media_source::Error::Redirects { .. }
                | media_source::Error::Encoded { .. },
            )
            | Self::Pool(_) => base,
            Self::Source(
                media_source::Error::Url { .. }
                | media_source::Error::Scheme { .. }
                | media_source::Error::TooLarge { .. },
            )
            | Self::NotAnImage { .. } => base * 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_believed_for_a_shorter_time() {
        let base = Duration::from_secs(4);
        let status = |status| Error::Source(media_source::Error::Status { status });
        assert_eq!(status(404).keep(base).as_secs(), 4);
        assert_eq!(status(503).keep(base).as_secs(), 2);
        assert_eq!(status(429).keep(base).as_secs(), 2);
        let timeout = media_source::Error::Timeout { deadline: base };
        assert_eq!(Error::Source(timeout).keep(base).as_secs(), 2);
        assert_eq!(Error::NotAnImage { reason: String::new() }.keep(base).as_secs(), 24);
    }
}
