//! `HeaderCache`: sizes of images that engines fetch themselves, and the names that engines give them, by URL.
//!
//! *Parent*: whoever makes it; it is a cache without a mailbox, and its work runs in its callers.
//! *Asks*: the media source, for the first bytes only. *Bound*: entries, bytes read and questions are all limited.
//! *When it dies*: it cannot; a caller that goes away in the middle of a question leaves it to the next one that waits.

mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use identity::{MediaId, ModelName};
use media_geometry::ImageSize;
use media_probe::{Probe, probe, probe_whole};
use moka::future::Cache;
use moka::ops::compute::Op;
use ports::media_source::{Begun, Fetch, Limits, Wanted};
use ports::{Clock, MediaSource};

pub use crate::dim_cache::Error;
use crate::dim_cache::fact::{self, Fact};
use crate::gossip::{Digest, Gossip};
use crate::normal_url::{NormalUrl, normalise};

/// Bounds of the cache.
#[derive(Clone, Debug)]
pub struct Config {
    /// URLs kept.
    pub facts_max: u64,
    /// Longest time a URL is kept.
    pub keep: Duration,
    /// How long an origin's refusal is remembered; other failures for longer or shorter, by their kind.
    pub negative: Duration,
    /// Bounds of one question; `bytes_max` is how much of an image is read at most.
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
            limits: Limits::default(),
            gossip: Gossip::default(),
        }
    }
}

/// What is known of an image without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its size as shown; none where it is of no known format.
    pub size: Option<ImageSize>,
    /// Whether the origin was asked.
    pub asked: bool,
    /// The version that this is about.
    pub version: Version,
    names: Arc<[(ModelName, MediaId)]>,
}

impl Glance {
    /// Returns the name by which a model's engines know it.
    #[must_use]
    pub fn name(&self, model: &ModelName) -> Option<&MediaId> {
        self.names.iter().find(|(other, _)| other == model).map(|(_, id)| id)
    }
}

/// One version of what is behind a URL; names are given to versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    url: Digest,
    number: u64,
}

/// What is remembered of a version.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    size: Option<ImageSize>,
    names: Arc<[(ModelName, MediaId)]>,
    number: u64,
}

impl PartialEq for Seen {
    /// Numbers are this frontend's own.
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.names == other.names
    }
}

/// Knows images by their headers; cheap to clone.
#[derive(Clone, Debug)]
pub struct HeaderCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    facts: Cache<Digest, Arc<Fact<Seen>>>,
    source: Arc<dyn MediaSource>,
    clock: Arc<dyn Clock>,
    versions: AtomicU64,
}

/// Models whose engines' names are kept for one version.
const NAMES_MAX: usize = 16;

impl HeaderCache {
    /// Makes an empty cache in front of a source.
    #[must_use]
    pub fn new(config: Config, source: Arc<dyn MediaSource>, clock: Arc<dyn Clock>) -> Self {
        let facts = Cache::builder().max_capacity(config.facts_max).time_to_live(config.keep).build();
        Self(Arc::new(Inner { config, facts, source, clock, versions: AtomicU64::new(0) }))
    }

    /// Says what is behind a URL: without I/O while that is fresh, else by one question however many ask.
    ///
    /// # Errors
    /// The origin does not tell; the same answer is given for a while without asking again.
    pub async fn glance(&self, url: &str) -> Result<Glance, Error> {
        let normal = normalise(url)?;
        let (digest, since) = (self.0.config.gossip.url(&normal), self.0.clock.now());
        if let Some(fact) = self.0.facts.get(&digest).await
            && fact.usable(&normal.credentials, since, since)
        {
            return glance(&fact, digest, false);
        }
        self.0.flight(url, &normal, (digest, since)).await
    }

    /// Judges a URL without asking anybody.
    ///
    /// # Errors
    /// It is refused: the caller answers 400.
    pub fn check(&self, url: &str) -> Result<(), Error> {
        normalise(url)?;
        Ok(self.0.source.check(url)?)
    }

    /// Remembers the name that a model's engines give a version, if it is still the present one.
    pub async fn name(&self, version: Version, model: &ModelName, id: &MediaId) {
        self.rename(version, |names| {
            names.retain(|(other, _)| other != model);
            names.push((model.clone(), id.clone()));
            names.len() <= NAMES_MAX
        })
        .await;
    }

    /// Forgets the name of a version: predictions by it were wrong.
    pub async fn unname(&self, version: Version, model: &ModelName) {
        self.rename(version, |names| {
            let before = names.len();
            names.retain(|(other, _)| other != model);
            names.len() != before
        })
        .await;
    }

    async fn rename(&self, version: Version, change: impl FnOnce(&mut Vec<(ModelName, MediaId)>) -> bool) {
        let Some(present) = self.0.facts.get(&version.url).await else { return };
        let Ok(seen) = &present.outcome else { return };
        let mut names = seen.names.to_vec();
        if seen.number != version.number || !change(&mut names) {
            return;
        }
        let seen = Seen { names: Arc::from(names), ..seen.clone() };
        let renamed = Fact { outcome: Ok(seen), ..Fact::clone(&present) };
        self.0.tell(version.url, Some(&present), &renamed);
        self.0.facts.insert(version.url, Arc::new(renamed)).await;
    }

    /// Counts the URLs kept; approximate.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.facts.entry_count()
    }

    /// Tells whether nothing is kept; approximate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn glance(fact: &Fact<Seen>, url: Digest, asked: bool) -> Result<Glance, Error> {
    let Seen { size, names, number } = fact.outcome.clone()?;
    Ok(Glance { size, names, asked, version: Version { url, number } })
}

impl Inner {
    /// Asks the origin; of several that ask at once, one does and the others take its answer.
    async fn flight(
        &self,
        url: &str,
        normal: &NormalUrl,
        (digest, since): (Digest, Duration),
    ) -> Result<Glance, Error> {
        let mut asked = false;
        let computed = self.facts.entry(digest).and_try_compute_with(|entry| {
            let asked = &mut asked;
            Box::pin(async move {
                let before = entry.map(moka::Entry::into_value);
                let usable =
                    |fact: &Arc<Fact<Seen>>| fact.usable(&normal.credentials, self.clock.now(), since);
                if before.as_ref().is_some_and(usable) {
                    return Ok(Op::Nop);
                }
                *asked = true;
                let fact = self.ask(url, normal, before.as_deref()).await?;
                if let Some(error) = fact.spoils(before.as_deref()) {
                    return Err(error.clone());
                }
                self.tell(digest, before.as_deref(), &fact);
                Ok(Op::Put(Arc::new(fact)))
            })
        });
        let computed: Result<_, Error> = computed.await;
        match computed?.into_entry() {
            Some(entry) => glance(&entry.into_value(), digest, asked),
            None => Err(ports::media_source::Error::Status { status: 404 }.into()),
        }
    }

    /// Puts the question to the origin: conditionally where a version is known.
    async fn ask(
        &self,
        url: &str,
        normal: &NormalUrl,
        before: Option<&Fact<Seen>>,
    ) -> Result<Fact<Seen>, Error> {
        let known = before.filter(|before| before.outcome.is_ok());
        let asked = self.clock.now();
        let fetch = Fetch {
            url: url.to_owned(),
            known: known.and_then(|known| known.validator.clone()),
            limits: self.config.limits,
        };
        let failed = |error| Fact::failed(error, &normal.credentials, self.clock.now(), self.config.negative);
        match (self.source.begin(fetch, Wanted::new(wanted)).await, known) {
            (Ok(Begun::NotModified { freshness }), Some(known)) => {
                let fresh_until = fact::fresh_until(asked, freshness);
                Ok(known.confirmed(&normal.credentials, self.clock.now(), fresh_until))
            }
            (Ok(Begun::NotModified { .. }), None) => {
                Err(ports::media_source::Error::Status { status: 304 }.into())
            }
            (Ok(Begun::Beginning { bytes, whole, validator, freshness, .. }), known) => {
                let size = match size(&bytes, whole) {
                    Ok(size) => size,
                    Err(error) => return Ok(failed(error)),
                };
                let validator = fact::proving(validator, self.clock.wall_ms() / 1000);
                // An origin that ignores conditions may still say that it is the same version.
                let same = known.filter(|known| validator.is_some() && known.validator == validator);
                let seen = same.and_then(|same| same.outcome.clone().ok()).filter(|seen| seen.size == size);
                Ok(Fact {
                    outcome: Ok(seen.unwrap_or_else(|| self.seen(size, Arc::from([])))),
                    validator,
                    credentials: Arc::clone(&normal.credentials),
                    learned: self.clock.now(),
                    fresh_until: fact::fresh_until(asked, freshness),
                })
            }
            (Err(busy @ ports::media_source::Error::Busy { .. }), _) => Err(busy.into()),
            (Err(error), _) => Ok(failed(error.into())),
        }
    }

    /// Numbers a new version.
    fn seen(&self, size: Option<ImageSize>, names: Arc<[(ModelName, MediaId)]>) -> Seen {
        Seen { size, names, number: self.versions.fetch_add(1, Ordering::Relaxed) }
    }
}

/// What is read at least of an image that only its end could turn: as much as a first read brings anyway, so that whoever
/// is no longer is known to the end.
const BEGINNING_BYTES: usize = 16 << 10;

/// Says how much more of an image must be read to know its size.
///
/// A PNG is taken to be as what stands before its image data says: only the whole file could tell more, few writers put
/// what turns an image behind them, and predictions are checked.
fn wanted(beginning: &[u8], whole: bool) -> Option<u64> {
    match if whole { probe_whole(beginning) } else { probe(beginning) } {
        Probe::Sized { .. } | Probe::Unknown | Probe::Malformed(_) => None,
        Probe::Tentative { behind_pixels: true, .. } if beginning.len() >= BEGINNING_BYTES => None,
        Probe::Tentative { at_least_bytes, .. } | Probe::NeedMore { at_least_bytes } => Some(at_least_bytes),
    }
}

/// Reads an image's size; none for what the router does not read, and engines may.
fn size(beginning: &[u8], whole: bool) -> Result<Option<ImageSize>, Error> {
    match if whole { probe_whole(beginning) } else { probe(beginning) } {
        Probe::Sized { width, height, .. } | Probe::Tentative { width, height, behind_pixels: true, .. } => {
            Ok(Some(ImageSize::new(width, height)))
        }
        // What may turn it lies past the limit.
        Probe::Tentative { .. } | Probe::NeedMore { .. } | Probe::Unknown => Ok(None),
        Probe::Malformed(malformed) => Err(Error::NotAnImage { reason: malformed.to_string() }),
    }
}
