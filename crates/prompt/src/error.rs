//! Why a request is refused.

use std::borrow::Cow;

/// Why a request's body cannot be served; each is the client's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The body is not JSON.
    #[error("malformed JSON at line {line} column {column}: {what}")]
    Malformed {
        /// What was found or missed.
        what: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// A parameter has another type than it should.
    #[error("`{param}` must be {expected}")]
    WrongType {
        /// Path of the parameter.
        param: String,
        /// What it should be, with its article.
        expected: &'static str,
    },
    /// A required parameter is absent.
    #[error("`{param}` is required")]
    Missing {
        /// Path of the parameter.
        param: String,
    },
    /// A parameter's value is refused.
    #[error("`{param}` {reason}")]
    Refused {
        /// Path of the parameter.
        param: String,
        /// Why, to follow the parameter's name.
        reason: Cow<'static, str>,
    },
    /// A media item cannot be used.
    #[error("media item {index}: {fault}")]
    Media {
        /// The item's index among the request's media, from 0.
        index: usize,
        /// Path of the part.
        param: String,
        /// What is wrong with it.
        fault: MediaFault,
    },
    /// The chat template raised an exception on purpose.
    #[error("{message}")]
    Raised {
        /// What the template says.
        message: String,
    },
}

/// What is wrong with a media item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaFault {
    /// The URL's scheme is not served.
    #[error("the URL must be an http, https or data URL")]
    Scheme,
    /// A data URL without a comma.
    #[error("the data URL has no `,`")]
    NoComma,
    /// A data URL in another encoding than base64.
    #[error("only base64 data URLs are supported")]
    NotBase64,
    /// The payload is not base64.
    #[error("invalid base64 at byte {at} of the payload")]
    Base64 {
        /// Offset in the base64 text.
        at: usize,
    },
    /// The payload is empty.
    #[error("the data URL is empty")]
    Empty,
    /// The item has more bytes than allowed.
    #[error("{bytes} bytes are more than the limit of {limit}")]
    TooLarge {
        /// The item's size in bytes, or more than the limit where it was not read to its end.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Neither a payload nor an identity is given.
    #[error("neither a URL nor a uuid is given")]
    Nothing,
}

impl Error {
    /// Returns the path of the parameter at fault, as OpenAI's `param` names it.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Malformed { .. } | Self::Raised { .. } => None,
            Self::WrongType { param, .. }
            | Self::Missing { param }
            | Self::Refused { param, .. }
            | Self::Media { param, .. } => Some(param),
        }
    }

    /// Tells whether the fault is size, which HTTP answers with 413 instead of 400.
    #[must_use]
    pub const fn is_too_large(&self) -> bool {
        matches!(self, Self::Media { fault: MediaFault::TooLarge { .. }, .. })
    }

    pub(crate) fn wrong(param: impl Into<String>, expected: &'static str) -> Self {
        Self::WrongType { param: param.into(), expected }
    }

    pub(crate) fn refused(param: impl Into<String>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused { param: param.into(), reason: reason.into() }
    }
}
