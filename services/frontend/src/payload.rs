//! A request's body on its way to a worker that is yet to be chosen.

use actors::media_resolver::Handed;
use bytes::Bytes;
use prompt::Outline;

/// A body, up to what depends on the worker: how it is handed the media that are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Payload {
    outline: Outline,
    handed: Vec<Handed>,
}

impl Payload {
    pub(crate) const fn new(outline: Outline, handed: Vec<Handed>) -> Self {
        Self { outline, handed }
    }

    /// Makes a payload that is the same for all workers.
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { outline: Outline::whole(body), handed: Vec::new() }
    }

    /// Returns the media to hand over, in order of index.
    pub(crate) fn handed(&self) -> &[Handed] {
        &self.handed
    }

    /// Emits the body with these URLs, one for each of `handed`.
    pub(crate) fn body(&self, urls: &[Bytes]) -> Vec<Bytes> {
        self.outline.fill(|index| {
            let at = self.handed.binary_search_by_key(&index, |handed| handed.index).ok()?;
            urls.get(at).cloned()
        })
    }

    /// Emits what is the same however the media are handed over; their identities are in it.
    pub(crate) fn constant(&self) -> Vec<Bytes> {
        self.outline.fill(|_| Some(Bytes::new()))
    }
}
