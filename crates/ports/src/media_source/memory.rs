//! An origin in memory.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{Error, Fetch, Fetched, Freshness, MediaSource, Validator};

/// A resource of the in-memory origin.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its version; a fetch that knows it is answered "not modified".
    pub validator: Validator,
    /// Its lifetime.
    pub freshness: Freshness,
}

/// Serves resources by URL, and counts.
#[derive(Clone, Debug, Default)]
pub struct MemorySource(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    resources: HashMap<String, Resource>,
    fetches: Vec<Fetch>,
}

impl MemorySource {
    /// Puts a resource at a URL, or replaces it.
    pub fn put(&self, url: &str, resource: Resource) {
        self.0.lock().resources.insert(url.to_owned(), resource);
    }

    /// Takes away what is at a URL.
    pub fn remove(&self, url: &str) {
        self.0.lock().resources.remove(url);
    }

    /// Returns the fetches that were asked for, in order.
    #[must_use]
    pub fn fetches(&self) -> Vec<Fetch> {
        self.0.lock().fetches.clone()
    }
}

#[async_trait]
impl MediaSource for MemorySource {
    async fn fetch(&self, fetch: Fetch) -> Result<Fetched, Error> {
        let resource = {
            let mut state = self.0.lock();
            let resource = state.resources.get(&fetch.url).cloned();
            state.fetches.push(fetch.clone());
            resource
        };
        tokio::task::yield_now().await;
        let Some(resource) = resource else { return Err(Error::Status { status: 404 }) };
        if fetch.known.is_some_and(|known| !known.is_empty() && known == resource.validator) {
            return Ok(Fetched::NotModified { freshness: resource.freshness });
        }
        if u64::try_from(resource.bytes.len()).unwrap_or(u64::MAX) > fetch.limits.bytes_max {
            return Err(Error::TooLarge { bytes_max: fetch.limits.bytes_max });
        }
        Ok(Fetched::Body {
            bytes: resource.bytes,
            content_type: None,
            validator: resource.validator,
            freshness: resource.freshness,
        })
    }
}
