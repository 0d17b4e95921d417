//! `MediaResolver`: turns a request's media into identities, sizes, and what the engine is handed instead.
//!
//! *Parent*: whoever makes it; it has no mailbox, and its work runs in its callers. *Asks*: the `DimCache` and the pool.
//! *Bound*: items per request, bytes per item. *When it dies*: it cannot.

mod late;
mod passing;
mod pixels;
mod span;
mod tenancy;

use std::sync::Arc;
use std::time::Duration;

use identity::{MediaId, MediaKey, ModelName};
use media_geometry::ImageSize;
use media_probe::Probe;
use prompt::{ChatRequest, DataUri, MediaEdit, MediaFact, MediaFault, MediaKind, MediaPart, MediaSource};
use tracing::Instrument as _;

use crate::dim_cache::{self, Allowance, DimCache, Known, Stored};
use crate::header_cache::HeaderCache;
use crate::media_policy::MediaPolicy;
use crate::preprocessor;

use late::Keeper;
pub use late::{Arrived, Late};
pub use passing::Passed;
use passing::Passing;

/// Bounds of media.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Media items of one request.
    pub items_max: usize,
    /// Bytes of one item.
    pub item_bytes_max: u64,
    /// Pixels of one image.
    pub pixels_max: u64,
    /// How long a request waits for look-ups before it is placed without what is not known.
    pub budget: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            items_max: 64,
            item_bytes_max: 32 << 20,
            pixels_max: media_geometry::PIXELS_MAX,
            budget: Duration::from_millis(250),
        }
    }
}

/// Resolves media; cheap to clone.
#[derive(Clone, Debug)]
pub struct MediaResolver {
    config: Config,
    cache: DimCache,
    keeper: Keeper,
    /// How images that are not fetched are treated; none where all are.
    passing: Option<Arc<Passing>>,
}

/// Who asks for a request's media, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Whose names for media count.
    pub tenant: &'a str,
    /// The model whose engines' names for media count.
    pub model: &'a ModelName,
    /// Whether bytes are needed, to be handed over; else what a decision needs.
    pub bytes: bool,
    /// What the request may hold of fetched media.
    pub allowance: &'a Allowance,
}

/// The items that are in a body, in order.
#[derive(Debug, Default)]
pub struct InBody(Vec<Known>);

/// The items that are not in the body, by index.
#[derive(Debug, Default)]
pub struct Elsewhere(Vec<Option<Found>>);

/// What became of a request's media.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Identities and sizes, by index.
    pub facts: Vec<MediaFact>,
    /// How the body is to be changed.
    pub edits: Vec<MediaEdit>,
    /// What the engine is to be handed in place of URLs, by index.
    pub handed: Vec<Handed>,
    /// Items without payload: only holders where they are resident can serve the request.
    pub payload_free: Vec<MediaKey>,
    /// One per item, by index.
    pub items: Vec<Item>,
}

/// An item whose bytes are here and not in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Index among the request's media.
    pub index: usize,
    /// The bytes' identity.
    pub id: MediaId,
    /// The bytes.
    pub stored: Stored,
}

/// How one item was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Index among the request's media.
    pub index: usize,
    /// What it is.
    pub kind: MediaKind,
    /// Where its bytes came from.
    pub origin: Origin,
    /// Identity and size; none where the router doesn't read the item.
    pub known: Option<Known>,
    /// What is known of an item that the engine fetches itself.
    pub passed: Option<Passed>,
}

/// Where an item's bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The body.
    Data,
    /// A URL, without asking its origin.
    Cached,
    /// A URL, by asking its origin.
    Fetched,
    /// The engine fetches it; its header was known.
    Glanced,
    /// The engine fetches it; its header was read.
    Probed,
    /// The engine fetches it, and nobody else asked.
    Untouched,
    /// A URL, whose origin had not answered when the request was placed.
    Late,
    /// Nowhere: the client's name for it was known.
    Named,
    /// The body, unread.
    Opaque,
}

impl Origin {
    /// Returns the origin's name in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Cached => "url-cached",
            Self::Fetched => "url",
            Self::Glanced => "header-cached",
            Self::Probed => "header",
            Self::Untouched => "untouched",
            Self::Late => "url-late",
            Self::Named => "uuid",
            Self::Opaque => "opaque",
        }
    }
}

/// Why a request's media cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request has too many items.
    #[error("{items} media items are more than the limit of {items_max}")]
    TooMany {
        /// How many it has.
        items: usize,
        /// The limit.
        items_max: usize,
    },
    /// One item is at fault.
    #[error("media item {index}: {fault}")]
    Item {
        /// Index among the request's media.
        index: usize,
        /// Path of the part in the body.
        param: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The pool is overloaded, or a job failed.
    #[error(transparent)]
    Pool(#[from] preprocessor::Error),
}

/// What is wrong with an item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its data URI.
    #[error(transparent)]
    Data(#[from] MediaFault),
    /// Its bytes are a broken image.
    #[error("the bytes are no image of a known format: {reason}")]
    NotAnImage {
        /// What is broken.
        reason: String,
    },
    /// It is an image that engines do not open.
    #[error("the image has {width}x{height} pixels, more than {pixels_max} in all")]
    TooManyPixels {
        /// Pixels from left to right.
        width: u32,
        /// Pixels from top to bottom.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
    /// It cannot be fetched.
    #[error(transparent)]
    Fetch(dim_cache::Error),
    /// It has only a name, and what that stands for is not known, or not any more.
    #[error("nothing is known of its uuid, or no longer: send its data along with it")]
    UnknownName,
    /// Its URL is of the engine's own disk.
    #[error("file URLs are not allowed")]
    Local,
}

impl MediaResolver {
    /// Makes a resolver.
    #[must_use]
    pub fn new(config: Config, cache: DimCache) -> Self {
        Self { config, cache, keeper: Keeper::default(), passing: None }
    }

    /// Leaves to engines the images that a policy does not want fetched here.
    #[must_use]
    pub fn with_policy(mut self, policy: MediaPolicy, headers: HeaderCache) -> Self {
        self.passing = (!policy.fetches_all()).then(|| Arc::new(Passing { policy, headers }));
        self
    }

    /// Returns the cache.
    #[must_use]
    pub const fn cache(&self) -> &DimCache {
        &self.cache
    }

    /// Hashes and sizes the items that are in the body: CPU work over all of it, for the pool.
    ///
    /// # Errors
    /// `Item` and `TooMany` are the client's to mend.
    pub fn read_body(&self, request: &ChatRequest) -> Result<InBody, Error> {
        let parts = request.media();
        if parts.len() > self.config.items_max {
            return Err(Error::TooMany { items: parts.len(), items_max: self.config.items_max });
        }
        let known = parts.iter().filter_map(|part| match &part.source {
            MediaSource::Data(uri) => {
                let fault = |fault| Error::Item { index: part.index, param: part.param(), fault };
                let span = span::of(part);
                let known = span.in_scope(|| identify(uri, part.kind, self.config.item_bytes_max));
                span::record(&span, Origin::Data, (known.as_ref().ok(), None));
                Some(known.map_err(fault))
            }
            MediaSource::Url(_) | MediaSource::Local(_) | MediaSource::Absent | MediaSource::Opaque => None,
        });
        known.collect::<Result<_, _>>().map(InBody)
    }

    /// Finds the items that are not in the body, all at once, as far as the budget goes; the rest is [`Late`].
    ///
    /// # Errors
    /// `Item` is the client's to mend. `Pool` means overload.
    pub async fn look_up(
        &self,
        request: &ChatRequest,
        asker: Asker<'_>,
    ) -> Result<(Elsewhere, Option<Late>), Error> {
        let bytes = asker.bytes;
        let finds = request.media().iter().map(|part| -> late::LookUp {
            let (resolver, part) = (self.clone(), part.clone());
            let (tenant, model, allowance) =
                (asker.tenant.to_owned(), asker.model.clone(), asker.allowance.clone());
            Box::pin(async move {
                let asker = Asker { tenant: &tenant, model: &model, bytes, allowance: &allowance };
                resolver.find(&part, asker).await
            })
        });
        let (found, late) = late::within(self.config.budget, finds, &self.keeper).await?;
        Ok((Elsewhere(found), late))
    }

    /// Remembers what the client's own names stand for.
    pub async fn remember(&self, request: &ChatRequest, resolved: &Resolved, tenant: &str) {
        for (part, item) in request.media().iter().zip(&resolved.items) {
            if let (Some(uuid), Some(known)) = (&part.client_uuid, &item.known) {
                self.cache.name(tenant, uuid, known).await;
            }
        }
    }

    /// As `elsewhere`, within a span of the request's trace.
    async fn find(&self, part: &MediaPart, asker: Asker<'_>) -> Result<Option<Found>, Error> {
        if matches!(part.source, MediaSource::Data(_) | MediaSource::Opaque) {
            return Ok(None);
        }
        let span = span::of(part);
        let found = self.elsewhere(part, asker).instrument(span.clone()).await?;
        if let Some(found) = &found {
            span::record(&span, found.origin, (found.known.as_ref(), found.passed.as_ref()));
        }
        Ok(found)
    }

    /// Finds an item that is not in the body; none for one that is, or that the router doesn't read.
    async fn elsewhere(&self, part: &MediaPart, asker: Asker<'_>) -> Result<Option<Found>, Error> {
        let fault = |fault| Error::Item { index: part.index, param: part.param(), fault };
        match &part.source {
            MediaSource::Data(_) | MediaSource::Opaque => Ok(None),
            MediaSource::Local(_) => Err(fault(Fault::Local)),
            MediaSource::Absent => {
                let uuid = part.client_uuid.as_deref().unwrap_or_default();
                let known =
                    self.cache.named(asker.tenant, uuid).await.ok_or_else(|| fault(Fault::UnknownName))?;
                Ok(Some(Found::of(known, Origin::Named)))
            }
            MediaSource::Url(url) => match self.pass(part, url, asker.model).await? {
                Some(passed) => Ok(Some(passed)),
                None => self.fetch(url, asker).await.map(Some).map_err(|error| at_fault(part, error)),
            },
        }
    }

    async fn fetch(&self, url: &str, asker: Asker<'_>) -> Result<Found, dim_cache::Error> {
        let origin = |fetched| if fetched { Origin::Fetched } else { Origin::Cached };
        if asker.bytes {
            let item = self.cache.fetch(url, asker.allowance).await?;
            return Ok(Found { stored: Some(item.stored), ..Found::of(item.known, origin(item.fetched)) });
        }
        let (known, fetched) = self.cache.know(url, asker.allowance).await?;
        Ok(Found::of(known, origin(fetched)))
    }
}

/// Says whose fault it is that an item cannot be had.
fn at_fault(part: &MediaPart, error: dim_cache::Error) -> Error {
    match error {
        dim_cache::Error::Pool(error) => Error::Pool(error),
        error @ (dim_cache::Error::Source(_) | dim_cache::Error::NotAnImage { .. }) => {
            Error::Item { index: part.index, param: part.param(), fault: Fault::Fetch(error) }
        }
    }
}

#[derive(Debug)]
struct Found {
    known: Option<Known>,
    origin: Origin,
    stored: Option<Stored>,
    passed: Option<Passed>,
}

impl Found {
    const fn of(known: Known, origin: Origin) -> Self {
        Self { known: Some(known), origin, stored: None, passed: None }
    }
}

impl Resolved {
    /// Tells whether a request has items that are not in its body, or names of its client's to remember.
    #[must_use]
    pub fn needs_look_up(request: &ChatRequest) -> bool {
        let in_body = |part: &MediaPart| match &part.source {
            MediaSource::Data(_) => part.client_uuid.is_none(),
            MediaSource::Opaque => true,
            MediaSource::Url(_) | MediaSource::Local(_) | MediaSource::Absent => false,
        };
        !request.media().iter().all(in_body)
    }

    /// Puts together what was found; `elsewhere` may be empty where nothing had to be looked up.
    #[must_use]
    pub fn join(request: &ChatRequest, in_body: InBody, elsewhere: Elsewhere) -> Self {
        let (mut in_body, mut elsewhere) = (in_body.0.into_iter(), elsewhere.0.into_iter());
        let mut resolved = Self::default();
        for part in request.media() {
            let looked_up = elsewhere.next().flatten();
            let found = match &part.source {
                MediaSource::Data(_) => in_body.next().map(|known| Found::of(known, Origin::Data)),
                MediaSource::Url(_) | MediaSource::Local(_) | MediaSource::Absent | MediaSource::Opaque => {
                    looked_up
                }
            };
            resolved.add(part, found);
        }
        resolved
    }

    /// Puts in what came late.
    pub fn fill(&mut self, request: &ChatRequest, arrived: Arrived) {
        for (index, found) in arrived.0 {
            let Some(part) = request.media().get(index) else { continue };
            self.items.retain(|item| item.index != index);
            self.add(part, Some(found));
        }
        self.facts.sort_by_key(|fact| fact.index);
        self.edits.sort_by_key(|edit| edit.index);
        self.handed.sort_by_key(|handed| handed.index);
        self.items.sort_by_key(|item| item.index);
    }

    fn add(&mut self, part: &MediaPart, found: Option<Found>) {
        let (index, kind) = (part.index, part.kind);
        let (known, origin, stored) = match found {
            Some(Found { known: Some(known), origin, stored, .. }) => (known, origin, stored),
            Some(Found { passed: Some(passed), origin, .. }) => return self.add_passed(part, passed, origin),
            None if matches!(part.source, MediaSource::Url(_)) => {
                self.items.push(Item { index, kind, origin: Origin::Late, known: None, passed: None });
                return;
            }
            None | Some(_) => return self.add_passed(part, Passed::default(), Origin::Opaque),
        };
        self.facts.push(MediaFact { index, id: Some(known.id.clone()), size: known.size });
        let uuid = Some(known.id.as_str().to_owned());
        self.edits.push(MediaEdit { index, uuid, replaces_url: stored.is_some(), unnames: false });
        self.handed.extend(stored.map(|stored| Handed { index, id: known.id.clone(), stored }));
        if origin == Origin::Named {
            self.payload_free.push(known.id.key());
        }
        self.items.push(Item { index, kind, origin, known: Some(known), passed: None });
    }
}

/// Items whose first bytes don't tell their size are kept up to this many bytes while they are decoded; larger ones are
/// decoded twice.
const KEPT_BYTES_MAX: usize = 4 << 20;

fn identify(uri: &DataUri, kind: MediaKind, bytes_max: u64) -> Result<Known, Fault> {
    let keep = |beginning: &[u8]| match kind {
        MediaKind::Image => match media_probe::probe(beginning) {
            Probe::Tentative { .. } | Probe::NeedMore { .. } => KEPT_BYTES_MAX,
            Probe::Sized { .. } | Probe::Unknown | Probe::Malformed(_) => beginning.len(),
        },
        MediaKind::Video | MediaKind::Audio | MediaKind::Embeds => 0,
    };
    let identified = uri.identify(bytes_max, keep)?;
    let (id, bytes) = (identified.id, identified.bytes);
    let whole = u64::try_from(identified.prefix.len()).is_ok_and(|prefix| prefix == bytes);
    let probed = match kind {
        MediaKind::Image if whole => media_probe::probe_whole(&identified.prefix),
        MediaKind::Image => match media_probe::probe(&identified.prefix) {
            Probe::Tentative { .. } | Probe::NeedMore { .. } => {
                media_probe::probe_whole(&uri.decode(bytes_max)?)
            }
            settled @ (Probe::Sized { .. } | Probe::Unknown | Probe::Malformed(_)) => settled,
        },
        MediaKind::Video | MediaKind::Audio | MediaKind::Embeds => Probe::Unknown,
    };
    let size = match probed {
        Probe::Sized { width, height, .. } | Probe::Tentative { width, height, .. } => {
            Some(ImageSize::new(width, height))
        }
        // A format that the engine may know all the same.
        Probe::Unknown | Probe::NeedMore { .. } => None,
        Probe::Malformed(malformed) => return Err(Fault::NotAnImage { reason: malformed.to_string() }),
    };
    Ok(Known { id, size, bytes })
}
