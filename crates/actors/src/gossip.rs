//! What this frontend's caches learn of media, on its way to other frontends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use identity::{MediaId, ModelName};
use ports::media_source::Validator;
use tokio::sync::broadcast;
use wire::fact;

pub(crate) use wire::fact::Digest;

use crate::dim_cache::Known;
use crate::dim_cache::fact::Fact;
use crate::normal_url::NormalUrl;

/// Names URLs and clients' names for the bus, and passes on what is news; cheap to clone.
///
/// Names are digests keyed by the cluster's secret: they show no URL, and other clusters' frontends use others.
#[derive(Clone)]
pub struct Gossip {
    key: [u8; 32],
    outlet: broadcast::Sender<Arc<News>>,
}

/// What other frontends are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// What is behind a URL.
    Fact {
        /// The fact; how long it is fresh is filled in when it is sent.
        fact: fact::Fact,
        /// Until when it may be used without asking, on the clock.
        fresh_until: Duration,
    },
    /// What a tenant's own name stands for.
    Name(fact::Name),
}

/// News that wait to be sent; past it the oldest are not told.
const WAITING_MAX: usize = 4096;
/// Longest text in what is told, in bytes: longer ones stay here.
const TEXT_BYTES_MAX: usize = 256;
/// Most of the engines' names in what is told.
const ENGINE_IDS_MAX: usize = 4;

impl Default for Gossip {
    fn default() -> Self {
        Self::new("")
    }
}

impl fmt::Debug for Gossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gossip").finish_non_exhaustive()
    }
}

impl Gossip {
    /// Keys the names by a cluster's secret.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        let key = blake3::derive_key("sightline media fact v1", secret.as_bytes());
        Self { key, outlet: broadcast::Sender::new(WAITING_MAX) }
    }

    /// Names a URL.
    pub(crate) fn url(&self, url: &NormalUrl) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"url\0").update(url.key.as_bytes());
        hasher.finalize().into()
    }

    /// Names a client's own name, which is its tenant's alone.
    pub(crate) fn name(&self, tenant: &str, uuid: &str) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let length = u64::try_from(tenant.len()).unwrap_or(u64::MAX);
        hasher.update(b"name\0").update(&length.to_le_bytes());
        hasher.update(tenant.as_bytes()).update(uuid.as_bytes());
        hasher.finalize().into()
    }

    /// Hears what is told from now on; a slow listener misses some.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<News>> {
        self.outlet.subscribe()
    }

    /// Tells what was found behind a URL, if it is news.
    pub(crate) fn tell_fact(
        &self,
        url: Digest,
        before: Option<&Fact<Known>>,
        now_known: &Fact<Known>,
        now: Duration,
    ) {
        if let (Ok(known), true) = (&now_known.outcome, now_known.is_news(before, now)) {
            self.tell(url, now_known, item(known), &[]);
        }
    }

    /// Tells what a tenant's own name stands for.
    pub(crate) fn tell_name(&self, name: Digest, known: &Known) {
        self.send(News::Name(fact::Name { name, item: item(known) }));
    }

    /// Tells of an item behind a URL, with the names that engines give it.
    pub(crate) fn tell<T>(
        &self,
        url: Digest,
        known: &Fact<T>,
        item: fact::Item,
        engine_ids: &[(ModelName, MediaId)],
    ) {
        let short = |(model, id): &&(ModelName, MediaId)| {
            model.as_str().len() <= TEXT_BYTES_MAX && id.as_str().len() <= TEXT_BYTES_MAX
        };
        let engine_ids = engine_ids.iter().filter(short).take(ENGINE_IDS_MAX).cloned().collect();
        let validator = known.validator.as_ref().and_then(wire_validator);
        let fact = fact::Fact { url, validator, fresh_ms: 0, item, engine_ids };
        self.send(News::Fact { fact, fresh_until: known.fresh_until });
    }

    fn send(&self, news: News) {
        // Without a board nobody needs to know.
        drop(self.outlet.send(Arc::new(news)));
    }
}

fn item(known: &Known) -> fact::Item {
    let size = known.size.map(|size| (size.width, size.height));
    fact::Item { id: Some(known.id.clone()), size, bytes: known.bytes }
}

fn wire_validator(validator: &Validator) -> Option<fact::Validator> {
    let short = |text: &&String| text.len() <= TEXT_BYTES_MAX;
    let etag = validator.etag.as_ref().filter(short).cloned().map(fact::Validator::Etag);
    let modified = || validator.last_modified.as_ref().filter(short).cloned();
    etag.or_else(|| modified().map(fact::Validator::LastModified))
}

/// Returns a validator as origins are asked with it.
pub(crate) fn validator_of(validator: &fact::Validator) -> Validator {
    match validator {
        fact::Validator::Etag(etag) => Validator { etag: Some(etag.clone()), last_modified: None },
        fact::Validator::LastModified(date) => Validator { etag: None, last_modified: Some(date.clone()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal_url::normalise;

    #[test]
    fn names_depend_on_secret_tenant_and_kind() {
        let (ours, theirs) = (Gossip::new("a"), Gossip::new("b"));
        let url = normalise("http://h/i.png?sig=x").unwrap();
        let unsigned = normalise("http://h/i.png").unwrap();
        assert_eq!(ours.url(&url), ours.url(&unsigned));
        assert_ne!(ours.url(&url), theirs.url(&url));
        assert_ne!(ours.name("t", "x"), ours.name("u", "x"));
        assert_ne!(ours.name("t", "ux"), ours.name("tu", "x"));
        assert_ne!(ours.name("", "http://h/i.png"), ours.url(&url));
    }
}
