//! One request, apart from its body.

use std::time::Duration;

use actors::dim_cache::Allowance;
use http::request::Parts;

use crate::access::Caller;

/// Who asks, under which name, since when, and what may be held for it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) id: String,
    pub(crate) caller: Caller,
    pub(crate) parts: &'a Parts,
    /// When it arrived, on the clock.
    pub(crate) arrived: Duration,
    pub(crate) allowance: Allowance,
}
