//! An origin in memory.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Begun, Error, Fetch, Fetched, Freshness, MediaSource, Room, Validator, Wanted};

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
    read_bytes: u64,
    /// URLs whose answers wait to be released.
    held: HashMap<String, Arc<Semaphore>>,
}

impl MemorySource {
    /// Has answers for a URL wait until it is released: a slow origin.
    pub fn hold(&self, url: &str) {
        self.0.lock().held.insert(url.to_owned(), Arc::new(Semaphore::new(0)));
    }

    /// Lets the answers for a URL go.
    pub fn release(&self, url: &str) {
        if let Some(held) = self.0.lock().held.remove(url) {
            held.close();
        }
    }

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

    /// Returns how many bytes of bodies were read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.0.lock().read_bytes
    }

    /// Finds a resource, and notes that it was asked for.
    fn find(&self, fetch: &Fetch) -> Result<Resource, Error> {
        let mut state = self.0.lock();
        state.fetches.push(fetch.clone());
        state.resources.get(&fetch.url).cloned().ok_or(Error::Status { status: 404 })
    }

    /// Waits while a URL's answers are held.
    async fn released(&self, url: &str) {
        let held = self.0.lock().held.get(url).cloned();
        match held {
            // Closed by the release: there are no permits.
            Some(held) => drop(held.acquire().await),
            None => tokio::task::yield_now().await,
        }
    }

    fn read(&self, bytes: &Bytes) {
        self.0.lock().read_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}

impl Fetch {
    /// Says whether the version asked about is the resource's.
    fn knows(&self, resource: &Resource) -> bool {
        self.known.as_ref().is_some_and(|known| !known.is_empty() && *known == resource.validator)
    }
}

/// Bytes of a body that come at once.
const PIECE: usize = 16 << 10;
/// Lengths of a beginning, growing.
const STEPS: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];

#[async_trait]
impl MediaSource for MemorySource {
    async fn fetch(&self, fetch: Fetch, room: &mut dyn Room) -> Result<Fetched, Error> {
        let resource = self.find(&fetch);
        self.released(&fetch.url).await;
        let resource = resource?;
        if fetch.knows(&resource) {
            return Ok(Fetched::NotModified { freshness: resource.freshness });
        }
        if u64::try_from(resource.bytes.len()).unwrap_or(u64::MAX) > fetch.limits.bytes_max {
            return Err(Error::TooLarge { bytes_max: fetch.limits.bytes_max });
        }
        let mut rest = resource.bytes.clone();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE));
            room.grow(u64::try_from(piece.len()).unwrap_or(u64::MAX))?;
            self.read(&piece);
        }
        Ok(Fetched::Body {
            bytes: resource.bytes,
            content_type: None,
            validator: resource.validator,
            freshness: resource.freshness,
        })
    }

    async fn begin(&self, fetch: Fetch, wanted: Wanted) -> Result<Begun, Error> {
        let resource = self.find(&fetch);
        self.released(&fetch.url).await;
        let resource = resource?;
        if fetch.knows(&resource) {
            return Ok(Begun::NotModified { freshness: resource.freshness });
        }
        let mut want = 0;
        let (bytes, whole) = loop {
            let step = STEPS.into_iter().find(|step| *step >= want).unwrap_or(u64::MAX);
            let len = usize::try_from(step.min(fetch.limits.bytes_max)).unwrap_or(usize::MAX);
            let whole = len >= resource.bytes.len();
            let bytes = resource.bytes.slice(..len.min(resource.bytes.len()));
            match wanted.more(&bytes, whole) {
                Some(more) if !whole && step < fetch.limits.bytes_max => want = more.max(step + 1),
                Some(_) | None => break (bytes, whole),
            }
        };
        self.read(&bytes);
        Ok(Begun::Beginning {
            bytes,
            whole,
            content_type: None,
            validator: resource.validator,
            freshness: resource.freshness,
        })
    }

    /// Knows no addresses: refuses what is not `http` or `https`.
    fn check(&self, url: &str) -> Result<(), Error> {
        let (scheme, _) = url.split_once(':').unwrap_or_default();
        if matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
            return Ok(());
        }
        Err(Error::Scheme { scheme: scheme.to_owned() })
    }
}
