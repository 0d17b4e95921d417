//! Items that the engine fetches itself.

use identity::{MediaId, ModelName};
use media_geometry::ImageSize;
use prompt::{MediaEdit, MediaFact, MediaKind, MediaPart};

use super::{Error, Found, Item, MediaResolver, Origin, Resolved, at_fault};
use crate::dim_cache;
use crate::header_cache::{HeaderCache, Version};
use crate::media_policy::{MediaPolicy, Treatment};

/// How images that are not fetched here are treated.
#[derive(Debug)]
pub(super) struct Passing {
    pub(super) policy: MediaPolicy,
    pub(super) headers: HeaderCache,
}

/// What is known of an item whose URL the engine is given as the client sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// What is behind its URL now, where that was looked at.
    pub version: Option<Version>,
    /// An image's size as shown, where it is known.
    pub size: Option<ImageSize>,
    /// The name by which the engine knows it, where that is known.
    pub id: Option<MediaId>,
    /// Whether the engine is given that name; else it makes it itself.
    pub given: bool,
}

impl MediaResolver {
    /// Finds what a decision needs of an item that the engine is to fetch; none for one that is fetched here.
    pub(super) async fn pass(
        &self,
        part: &MediaPart,
        url: &str,
        model: &ModelName,
    ) -> Result<Option<Found>, Error> {
        let Some(passing) = &self.passing else { return Ok(None) };
        let treatment = passing.policy.treatment(url);
        if treatment == Treatment::Fetch {
            return Ok(None);
        }
        passing.headers.check(url).map_err(|error| at_fault(part, error))?;
        if treatment == Treatment::Never || part.kind != MediaKind::Image {
            return Ok(Some(Found::passed(Passed::default(), Origin::Untouched)));
        }
        let immutable = passing.policy.immutable_id(url);
        let given = immutable.is_some();
        match passing.headers.glance(url).await {
            Ok(glance) => {
                let id = immutable.or_else(|| glance.name(model).cloned());
                let passed = Passed { version: Some(glance.version), size: glance.size, id, given };
                let origin = if glance.asked { Origin::Probed } else { Origin::Glanced };
                Ok(Some(Found::passed(passed, origin)))
            }
            // The engine may reach what the router does not, but for what nobody may ask for.
            Err(dim_cache::Error::Source(error)) if !error.refuses() => {
                let passed = Passed { id: immutable, given, ..Passed::default() };
                Ok(Some(Found::passed(passed, Origin::Probed)))
            }
            Err(error) => Err(at_fault(part, error)),
        }
    }
}

impl Found {
    const fn passed(passed: Passed, origin: Origin) -> Self {
        Self { known: None, origin, stored: None, passed: Some(passed) }
    }
}

impl Resolved {
    /// Adds an item whose bytes are not known here. Its client's own name for it never reaches the engine, which would
    /// take two items of one name for the same.
    pub(super) fn add_passed(&mut self, part: &MediaPart, passed: Passed, origin: Origin) {
        let (index, kind) = (part.index, part.kind);
        if passed.size.is_some() || passed.id.is_some() {
            self.facts.push(MediaFact { index, id: passed.id.clone(), size: passed.size });
        }
        let uuid = passed.id.as_ref().filter(|_| passed.given).map(|id| id.as_str().to_owned());
        let unnames = uuid.is_none();
        self.edits.push(MediaEdit { index, uuid, replaces_url: false, unnames });
        let passed = (origin != Origin::Opaque).then_some(passed);
        self.items.push(Item { index, kind, origin, known: None, passed });
    }
}
