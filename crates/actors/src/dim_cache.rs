//! `DimCache`: identity and size of media, by URL, by bytes and by the client's own names; and the bytes themselves.
//!
//! *Parent*: whoever makes it; it is a cache without a mailbox, and its work runs in its callers.
//! *Asks*: the media source, and the pool for hashing. *Bound*: entries, stored bytes and fetches are all limited.
//! *When it dies*: it cannot; a caller that goes away in the middle of a fetch leaves it to the next one that waits.

mod allowance;
mod error;
mod examine;
pub(crate) mod fact;
mod peers;
mod store;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::MediaId;
use moka::future::Cache;
use moka::ops::compute::Op;
use ports::media_source::{self, Fetch, Fetched, Limits};
use ports::{Clock, MediaSource};

pub use self::allowance::Allowance;
pub use self::error::{Error, Lost};
use self::examine::examine;
use self::fact::Fact;
pub use self::fact::Known;
use self::store::Store;
pub use self::store::Stored;
use crate::gossip::{Digest, Gossip};
use crate::normal_url::{NormalUrl, normalise};
use crate::preprocessor::Preprocessor;

/// Bounds of the cache.
#[derive(Clone, Debug)]
pub struct Config {
    /// Facts kept by URL, and as many by a client's name.
    pub facts_max: u64,
    /// Longest time a fact is kept.
    pub keep: Duration,
    /// How long an origin's refusal is remembered; other failures for longer or shorter, by their kind.
    pub negative: Duration,
    /// Fetched bytes kept.
    pub stored_bytes_max: u64,
    /// Bounds of one fetch.
    pub limits: Limits,
    /// What is told to other frontends, and under which names.
    pub gossip: Gossip,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            facts_max: 100_000,
            keep: Duration::from_secs(24 * 3600),
            negative: Duration::from_secs(5),
            stored_bytes_max: 512 << 20,
            limits: Limits::default(),
            gossip: Gossip::default(),
        }
    }
}

/// An item that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Identity and size of the bytes.
    pub known: Known,
    /// The bytes.
    pub stored: Stored,
    /// Whether the origin was asked for it.
    pub fetched: bool,
}

/// Knows media; cheap to clone.
#[derive(Clone, Debug)]
pub struct DimCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    facts: Cache<Digest, Arc<Fact<Known>>>,
    aliases: Cache<Digest, Known>,
    store: Store,
    source: Arc<dyn MediaSource>,
    clock: Arc<dyn Clock>,
    pool: Preprocessor,
}

/// Longest client's name that is remembered, in bytes.
const NAME_BYTES_MAX: usize = 512;

impl DimCache {
    /// Makes an empty cache in front of a source.
    #[must_use]
    pub fn new(
        config: Config,
        source: Arc<dyn MediaSource>,
        clock: Arc<dyn Clock>,
        pool: Preprocessor,
    ) -> Self {
        let facts = Cache::builder().max_capacity(config.facts_max).time_to_live(config.keep).build();
        let aliases = Cache::builder().max_capacity(config.facts_max).time_to_live(config.keep).build();
        let store = Store::new(config.stored_bytes_max);
        Self(Arc::new(Inner { config, facts, aliases, store, source, clock, pool }))
    }

    /// Finds what is behind a URL: without I/O while the facts are fresh, else by one request however many ask.
    ///
    /// # Errors
    /// The item cannot be had; the same answer is given for a while without asking again. Where the allowance has no
    /// room for it, others that ask still get it.
    pub async fn fetch(&self, url: &str, allowance: &Allowance) -> Result<Item, Error> {
        let item = self.find(url, allowance).await?;
        allowance.hold(&item.known.id, item.known.bytes).map_err(media_source::Error::from)?;
        Ok(item)
    }

    async fn find(&self, url: &str, allowance: &Allowance) -> Result<Item, Error> {
        let normal = normalise(url)?;
        let since = self.0.clock.now();
        if let Some(fact) = self.0.facts.get(&self.0.config.gossip.url(&normal)).await
            && let Some(found) = self.0.recall(&fact, &normal, since, since).await
        {
            return found;
        }
        self.0.flight((url, &normal), since, allowance).await
    }

    /// Finds the bytes that an id names, if they are still here.
    pub async fn stored(&self, id: &MediaId) -> Option<Stored> {
        self.0.store.get(id).await
    }

    /// Finds the bytes that an id named by asking for the URL they came from. What the origin has instead becomes the
    /// fact of that URL.
    ///
    /// # Errors
    /// Nothing that the id names can be had.
    pub async fn recover(&self, id: &MediaId, allowance: &Allowance) -> Result<Stored, Lost> {
        let url = self.0.store.origin(id).await.ok_or(Lost::Unknown)?;
        let item = self.fetch(&url, allowance).await?;
        if item.known.id == *id { Ok(item.stored) } else { Err(Lost::Changed) }
    }

    /// Remembers what a client's own name stands for; a very long one is not worth it.
    pub async fn name(&self, tenant: &str, uuid: &str, known: &Known) {
        if uuid.len() > NAME_BYTES_MAX {
            return;
        }
        let name = self.0.config.gossip.name(tenant, uuid);
        if self.0.aliases.get(&name).await.as_ref() != Some(known) {
            self.0.aliases.insert(name, known.clone()).await;
            self.0.config.gossip.tell_name(name, known);
        }
    }

    /// Finds what a client's own name stands for.
    pub async fn named(&self, tenant: &str, uuid: &str) -> Option<Known> {
        self.0.aliases.get(&self.0.config.gossip.name(tenant, uuid)).await
    }

    /// Returns facts, names, and bytes stored; approximate.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            facts: self.0.facts.entry_count(),
            names: self.0.aliases.entry_count(),
            stored_bytes: self.0.store.bytes(),
        }
    }
}

/// How full a cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// URLs known.
    pub facts: u64,
    /// Clients' names known.
    pub names: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
}

impl Inner {
    /// Answers from a fact, if it may be used and what it promises is there.
    async fn recall(
        &self,
        fact: &Fact<Known>,
        normal: &NormalUrl,
        now: Duration,
        since: Duration,
    ) -> Option<Result<Item, Error>> {
        if !fact.usable(&normal.credentials, now, since) {
            return None;
        }
        match &fact.outcome {
            Ok(known) => {
                let stored = self.store.get(&known.id).await?;
                Some(Ok(Item { known: known.clone(), stored, fetched: false }))
            }
            Err(error) => Some(Err(error.clone())),
        }
    }

    /// Asks the origin; of several that ask at once, one does and the others take its answer.
    async fn flight(
        &self,
        (url, normal): (&str, &NormalUrl),
        since: Duration,
        allowance: &Allowance,
    ) -> Result<Item, Error> {
        let mut answer = None;
        let url_digest = self.config.gossip.url(normal);
        let entry = self.facts.entry(url_digest);
        let computed = entry.and_try_compute_with(|entry| {
            let answer = &mut answer;
            Box::pin(async move {
                let before = entry.map(moka::Entry::into_value);
                if let Some(fact) = &before
                    && let Some(found) = self.recall(fact, normal, self.clock.now(), since).await
                {
                    *answer = Some(found?);
                    return Ok(Op::Nop);
                }
                let (fact, item) = self.ask((url, normal), before.clone(), allowance).await?;
                if let Some(error) = fact.spoils(before.as_deref()) {
                    return Err(error.clone());
                }
                self.config.gossip.tell_fact(url_digest, before.as_deref(), &fact, self.clock.now());
                *answer = item;
                Ok(Op::Put(Arc::new(fact)))
            })
        });
        let computed: Result<_, Error> = computed.await;
        let computed = computed?;
        match (answer, computed.into_entry().map(moka::Entry::into_value)) {
            (Some(item), _) => Ok(item),
            (None, Some(fact)) => match &fact.outcome {
                Err(error) => Err(error.clone()),
                Ok(_) => Err(media_source::Error::Unreachable {
                    host: String::new(),
                    reason: "the item was evicted while it was fetched".to_owned(),
                }
                .into()),
            },
            (None, None) => Err(media_source::Error::Status { status: 404 }.into()),
        }
    }

    /// Puts the question to the origin: conditionally if the bytes of a known version are still here.
    async fn ask(
        &self,
        (url, normal): (&str, &NormalUrl),
        fact: Option<Arc<Fact<Known>>>,
        allowance: &Allowance,
    ) -> Result<(Fact<Known>, Option<Item>), Error> {
        let known = match fact.as_deref() {
            Some(Fact { outcome: Ok(known), validator: Some(validator), .. }) => {
                self.store.get(&known.id).await.map(|stored| (known.clone(), validator.clone(), stored))
            }
            _ => None,
        };
        let asked = self.clock.now();
        let fetch = Fetch {
            url: url.to_owned(),
            known: known.as_ref().map(|(_, validator, _)| validator.clone()),
            limits: self.config.limits,
        };
        let mut room = allowance.room();
        match (self.source.fetch(fetch, &mut room).await, known, fact) {
            (Ok(Fetched::NotModified { freshness }), Some((known, _, stored)), Some(fact)) => {
                self.store.came_from(&known.id, url).await;
                let fact = fact.confirmed(
                    &normal.credentials,
                    self.clock.now(),
                    fact::fresh_until(asked, freshness),
                );
                Ok((fact, Some(Item { known, stored, fetched: true })))
            }
            (Ok(Fetched::NotModified { .. }), _, _) => {
                Err(media_source::Error::Status { status: 304 }.into())
            }
            (Ok(Fetched::Body { bytes, content_type, validator, freshness }), _, _) => {
                let (known, stored) = match self.identify(bytes, content_type).await {
                    Ok(identified) => identified,
                    Err(error @ Error::NotAnImage { .. }) => {
                        return Ok((self.failed(error, normal), None));
                    }
                    Err(error) => return Err(error),
                };
                allowance.keep(&known.id, room);
                self.store.keep(&known.id, &stored).await;
                self.store.came_from(&known.id, url).await;
                let fact = Fact {
                    outcome: Ok(known.clone()),
                    validator: fact::proving(validator, self.clock.wall_ms() / 1000),
                    credentials: Arc::clone(&normal.credentials),
                    learned: self.clock.now(),
                    fresh_until: fact::fresh_until(asked, freshness),
                };
                Ok((fact, Some(Item { known, stored, fetched: true })))
            }
            (Err(full @ (media_source::Error::Busy { .. } | media_source::Error::NoRoom(_))), _, _) => {
                Err(full.into())
            }
            (Err(error), _, _) => Ok((self.failed(error.into(), normal), None)),
        }
    }

    /// Makes a fact of a failure, so that it is not asked about again at once.
    fn failed(&self, error: Error, normal: &NormalUrl) -> Fact<Known> {
        Fact::failed(error, &normal.credentials, self.clock.now(), self.config.negative)
    }

    async fn identify(&self, bytes: Bytes, content_type: Option<String>) -> Result<(Known, Stored), Error> {
        let job = move || {
            let (size, media_type) = examine(&bytes, content_type.as_deref())?;
            let known = Known {
                id: prompt::media_id(&bytes),
                size,
                bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            };
            Ok((known, Stored { bytes, media_type: Arc::from(media_type) }))
        };
        self.pool.run(usize::MAX, job).await?
    }
}
