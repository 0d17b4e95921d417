//! A body whose media were not all known when its request was placed.

use actors::media_resolver::{Handed, Late, Resolved};
use prompt::{ChatRequest, MediaEdit, TenantKey};

use crate::api_error::ApiError;
use crate::payload::Payload;
use crate::understanding::Reader;

/// What makes the body once the rest is there. Nothing is sent before: a URL whose bytes were not read here never reaches an
/// engine, however slow its origin is.
#[derive(Debug)]
pub(crate) struct LatePayload {
    pub(crate) request: ChatRequest,
    /// What was known in time.
    pub(crate) resolved: Resolved,
    pub(crate) late: Late,
    pub(crate) key: Option<TenantKey>,
    pub(crate) tenant: String,
}

impl LatePayload {
    /// Waits for the rest and makes the payload.
    ///
    /// # Errors
    /// An item cannot be had, is none, or has too many pixels: the client's to mend.
    pub(crate) async fn settle(self, reader: &Reader) -> Result<Payload, ApiError> {
        let Self { request, mut resolved, late, key, tenant } = self;
        resolved.fill(&request, late.rest().await?);
        reader.media.check_sizes(&request, &resolved)?;
        reader.media.remember(&request, &resolved, &tenant).await;
        let bytes = request.body().len();
        reader.pool.run(bytes, move || payload(&request, resolved, key.as_ref())).await?
    }
}

/// Makes a payload of what is to be changed in a body, and of what is handed over in place of its URLs.
pub(crate) fn spell(
    request: &ChatRequest,
    edits: &[MediaEdit],
    handed: Vec<Handed>,
    salt: Option<&str>,
) -> Result<Payload, ApiError> {
    let outline = match salt {
        Some(salt) => request.outline_salted(edits, salt)?,
        None => request.outline(edits),
    };
    Ok(Payload::new(outline, handed))
}

fn payload(request: &ChatRequest, resolved: Resolved, key: Option<&TenantKey>) -> Result<Payload, ApiError> {
    let salt = key.map(|key| key.cache_salt(request.params().cache_salt.as_deref()));
    let Resolved { edits, handed, .. } = match key {
        Some(key) => resolved.for_tenant(request, key),
        None => resolved,
    };
    spell(request, &edits, handed, salt.as_deref())
}
