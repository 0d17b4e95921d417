//! One request, apart from its body.

use std::time::Duration;

use http::HeaderMap;

use crate::access::Caller;

/// Who asks, under which name, since when.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) caller: Caller,
    pub(crate) headers: HeaderMap,
    /// When it arrived, on the clock.
    pub(crate) arrived: Duration,
}
