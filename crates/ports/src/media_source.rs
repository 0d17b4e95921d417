//! Where media are fetched from: HTTP origins that nobody vouches for.

pub mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Retry;

/// What is wanted, and how much of it at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// An `http` or `https` URL as the client gave it.
    pub url: String,
    /// Answers "not modified" if the origin still has this version.
    pub known: Option<Validator>,
    /// Bounds of the whole exchange, redirects included.
    pub limits: Limits,
}

/// Bounds of one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body, in bytes.
    pub bytes_max: u64,
    /// Longest time from the call to the last byte.
    pub deadline: Duration,
    /// Most redirects followed.
    pub redirects_max: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_max: 32 << 20, deadline: Duration::from_secs(10), redirects_max: 4 }
    }
}

/// What the origin calls a version of its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Validator {
    /// `ETag`, as sent (weak ones begin with `W/`).
    pub etag: Option<String>,
    /// `Last-Modified`, as sent.
    pub last_modified: Option<String>,
}

impl Validator {
    /// Says whether there is nothing to compare by.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// How long an answer may be used without asking again (RFC 9111).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Rest of the lifetime the origin gives, `Age` subtracted; zero if it gives none.
    pub fresh_for: Duration,
    /// The answer must not be kept (`no-store`), or fits only this request (`Vary: *`).
    pub no_store: bool,
}

/// What the origin answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The whole resource.
    Body {
        /// Its bytes, as sent.
        bytes: Bytes,
        /// Its `Content-Type`, if told.
        content_type: Option<String>,
        /// Its version.
        validator: Validator,
        /// Its lifetime.
        freshness: Freshness,
    },
    /// The version asked about is still the origin's.
    NotModified {
        /// Its lifetime from now.
        freshness: Freshness,
    },
}

/// How much of a resource's beginning is wanted, told from what has come of it.
///
/// Gets the bytes so far, from the first, and whether nothing follows. Answers how long a beginning says more; none once
/// this one says enough.
#[derive(Clone)]
pub struct Wanted(Arc<Judge>);

type Judge = dyn Fn(&[u8], bool) -> Option<u64> + Send + Sync;

impl Wanted {
    /// Wraps a judgement; it runs between reads and must be quick.
    #[must_use]
    pub fn new(judge: impl Fn(&[u8], bool) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Judges a beginning.
    #[must_use]
    pub fn more(&self, beginning: &[u8], whole: bool) -> Option<u64> {
        (self.0)(beginning, whole)
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wanted").finish_non_exhaustive()
    }
}

/// What came of reading a resource's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The first bytes.
    Beginning {
        /// The bytes, from the first.
        bytes: Bytes,
        /// Whether nothing follows.
        whole: bool,
        /// The resource's `Content-Type`, if told.
        content_type: Option<String>,
        /// Its version.
        validator: Validator,
        /// Its lifetime.
        freshness: Freshness,
    },
    /// The version asked about is still the origin's.
    NotModified {
        /// Its lifetime from now.
        freshness: Freshness,
    },
}

/// Where what is fetched is kept: asked before a further piece of it is.
pub trait Room: Send {
    /// Makes room for so many further bytes; never waits.
    ///
    /// # Errors
    /// There is none: what is there already is to be dropped.
    fn grow(&mut self, bytes: u64) -> Result<(), NoRoom>;
}

/// As much room as the limits of a fetch allow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl Room for Unbounded {
    fn grow(&mut self, _: u64) -> Result<(), NoRoom> {
        Ok(())
    }
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// One request would hold more than a limit allows, whatever others hold.
    #[error("the request would hold more than {bytes_max} bytes ({limit})")]
    TooMuch {
        /// The limit's name.
        limit: &'static str,
        /// The limit.
        bytes_max: u64,
    },
    /// All requests together hold too much now.
    #[error("too many request bytes are held at once")]
    Exhausted,
}

/// Why a fetch failed; no variant carries the URL's query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no URL, or carries credentials.
    #[error("malformed url: {reason}")]
    Url {
        /// What is wrong.
        reason: String,
    },
    /// Neither `http` nor `https`.
    #[error("scheme {scheme:?} is not allowed")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The address policy refuses where the URL, or a redirect, leads.
    #[error("address of host {host:?} is not allowed: {reason}")]
    Denied {
        /// The host.
        host: String,
        /// The kind of address.
        reason: String,
    },
    /// The name does not resolve.
    #[error("host {host:?} does not resolve")]
    Unresolved {
        /// The host.
        host: String,
    },
    /// No connection, or it broke.
    #[error("host {host:?} cannot be reached: {reason}")]
    Unreachable {
        /// The host.
        host: String,
        /// The transport's words.
        reason: String,
    },
    /// The origin answered neither success nor a redirect.
    #[error("origin answered {status}")]
    Status {
        /// HTTP status.
        status: u16,
    },
    /// Too many redirects, or one without a target.
    #[error("more than {redirects_max} redirects, or one that leads nowhere")]
    Redirects {
        /// The limit.
        redirects_max: u8,
    },
    /// The body is larger than allowed.
    #[error("body exceeds {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The body is compressed, which nobody asked for: unpacked it could be of any size.
    #[error("the origin sends content encoded as {encoding:?}")]
    Encoded {
        /// The encoding.
        encoding: String,
    },
    /// The exchange took too long.
    #[error("no complete answer within {deadline:?}")]
    Timeout {
        /// The limit.
        deadline: Duration,
    },
    /// Too many fetches from this host, or in all, already run.
    #[error("too many fetches from host {host:?} at once")]
    Busy {
        /// The host.
        host: String,
    },
    /// There is no room for what comes.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl Error {
    /// Says whether the URL itself is refused, whatever its origin would answer.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        matches!(self, Self::Url { .. } | Self::Scheme { .. } | Self::Denied { .. })
    }

    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Url { .. }
            | Self::Scheme { .. }
            | Self::Denied { .. }
            | Self::TooLarge { .. }
            | Self::NoRoom(NoRoom::TooMuch { .. }) => Retry::Never,
            Self::Busy { .. } | Self::NoRoom(NoRoom::Exhausted) => Retry::After(Duration::from_millis(250)),
            Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::Status { .. }
            | Self::Redirects { .. }
            | Self::Encoded { .. }
            | Self::Timeout { .. } => Retry::After(Duration::from_secs(5)),
        }
    }
}

/// Fetches media.
#[async_trait]
pub trait MediaSource: Send + Sync + fmt::Debug {
    /// Fetches a resource whole, or learns that it has not changed. Safe to cancel.
    ///
    /// Room is made for each piece of the body as it comes; a body for which there is none is read no further.
    ///
    /// # Errors
    /// Nothing usable came; the caller answers 400 where `retry` says never, else may try again.
    async fn fetch(&self, fetch: Fetch, room: &mut dyn Room) -> Result<Fetched, Error>;

    /// Reads as much of a resource's beginning as is wanted, or learns that it has not changed. Safe to cancel.
    ///
    /// Reads grow: 16, 64, 256 KiB, then up to the limit of bytes, which ends the beginning without an error. An origin
    /// that ignores ranges is read no further than is wanted. All bytes are of one version.
    ///
    /// # Errors
    /// As for `fetch`, but for `TooLarge`.
    async fn begin(&self, fetch: Fetch, wanted: Wanted) -> Result<Begun, Error>;

    /// Says, without any I/O, whether a URL would be refused: by its form, its scheme, or the address in it. A name is
    /// not resolved; names that stand for the machine itself count as its address.
    ///
    /// # Errors
    /// `Url`, `Scheme` or `Denied`: the caller answers 400.
    fn check(&self, url: &str) -> Result<(), Error>;
}
