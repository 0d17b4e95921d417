//! The contract of [`crate::MediaSource`].

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Clause, Violation};
use crate::MediaSource;
use crate::media_source::memory::Resource;
use crate::media_source::{
    Begun, Error, Fetch, Fetched, Freshness, Limits, NoRoom, Room, Unbounded, Validator, Wanted,
};

/// Makes an origin, and a client of it.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns the client under test.
    fn client(&self) -> &dyn MediaSource;
    /// Puts a resource at the origin, in place of the one before, and returns its URL.
    async fn put(&self, name: &str, resource: Resource) -> String;
    /// Counts the requests that the origin has seen.
    async fn requests(&self) -> usize;
}

/// Runs the whole suite.
///
/// # Errors
/// The first clause that does not hold.
pub async fn check(harness: &dyn Harness) -> Result<(), Violation> {
    whole_resources(harness).await?;
    known_versions(harness).await?;
    limits(harness).await?;
    room(harness).await?;
    beginnings(harness).await?;
    refused_urls(harness)
}

fn fetch(url: &str, known: Option<Validator>) -> Fetch {
    Fetch { url: url.to_owned(), known, limits: Limits::default() }
}

fn resource() -> Resource {
    Resource {
        bytes: Bytes::from_static(b"0123456789"),
        validator: Validator { etag: Some("\"v1\"".to_owned()), last_modified: None },
        freshness: Freshness { fresh_for: Duration::from_secs(60), no_store: false },
    }
}

async fn whole_resources(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a resource comes whole, with version and lifetime, by one request");
    let url = harness.put("whole", resource()).await;
    let before = harness.requests().await;
    let fetched =
        clause.ok(clause.soon(harness.client().fetch(fetch(&url, None), &mut Unbounded)).await?)?;
    let Fetched::Body { bytes, validator, freshness, .. } = fetched else {
        return Err(clause.violated("not modified, though no version was named"));
    };
    let expected = resource();
    clause.same(&bytes, &expected.bytes)?;
    clause.same(&validator, &expected.validator)?;
    clause.same(&freshness, &expected.freshness)?;
    clause.same(&(harness.requests().await - before), &1)?;
    let missing = harness.client().fetch(fetch(&format!("{url}/missing"), None), &mut Unbounded).await;
    clause.same(&missing, &Err(Error::Status { status: 404 }))
}

async fn known_versions(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a known version is confirmed, another one comes whole");
    let url = harness.put("known", resource()).await;
    let known = Some(resource().validator);
    let confirmed =
        clause.ok(clause.soon(harness.client().fetch(fetch(&url, known.clone()), &mut Unbounded)).await?)?;
    clause.holds(matches!(confirmed, Fetched::NotModified { .. }), format!("{confirmed:?}"))?;
    let mut changed = resource();
    changed.validator.etag = Some("\"v2\"".to_owned());
    changed.bytes = Bytes::from_static(b"new");
    let url = harness.put("known", changed).await;
    let fetched =
        clause.ok(clause.soon(harness.client().fetch(fetch(&url, known), &mut Unbounded)).await?)?;
    clause.holds(matches!(&fetched, Fetched::Body { bytes, .. } if bytes == "new"), format!("{fetched:?}"))
}

async fn limits(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("no more than the limit is taken");
    let url = harness.put("large", resource()).await;
    let mut small = fetch(&url, None);
    small.limits.bytes_max = 9;
    clause.same(
        &harness.client().fetch(small.clone(), &mut Unbounded).await,
        &Err(Error::TooLarge { bytes_max: 9 }),
    )?;
    small.limits.bytes_max = 10;
    clause.ok(harness.client().fetch(small, &mut Unbounded).await).map(|_| ())
}

/// Room for so many bytes.
struct Left(u64);

impl Room for Left {
    fn grow(&mut self, bytes: u64) -> Result<(), NoRoom> {
        self.0 = self.0.checked_sub(bytes).ok_or(NoRoom::Exhausted)?;
        Ok(())
    }
}

async fn room(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("room is made for every byte of a body, and ends it where there is none");
    let url = harness.put("roomy", resource()).await;
    let (mut small, mut enough) = (Left(9), Left(11));
    let refused = harness.client().fetch(fetch(&url, None), &mut small).await;
    clause.same(&refused, &Err(NoRoom::Exhausted.into()))?;
    clause.ok(harness.client().fetch(fetch(&url, None), &mut enough).await)?;
    clause.same(&enough.0, &1)
}

/// A text whose every byte is told by its place.
fn long(len: usize) -> Resource {
    let bytes: Vec<u8> = (0..len).map(|at| b'a' + u8::try_from(at % 23).unwrap_or(0)).collect();
    Resource { bytes: Bytes::from(bytes), ..resource() }
}

/// Wants `len` bytes, or everything there is.
fn at_least(len: u64) -> Wanted {
    Wanted::new(move |beginning, whole| {
        let enough = whole || u64::try_from(beginning.len()).is_ok_and(|have| have >= len);
        (!enough).then_some(len)
    })
}

async fn beginnings(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a beginning is as long as is wanted, grows in steps, and is of one version");
    let resource = long(300 << 10);
    let url = harness.put("beginning", resource.clone()).await;
    for (wanted, most) in
        [(1, 16 << 10), (16 << 10, 16 << 10), (20_000, 64 << 10), (100_000, 256 << 10), (290_000, 300 << 10)]
    {
        let begun = harness.client().begin(fetch(&url, None), at_least(wanted));
        let begun = clause.ok(clause.soon(begun).await?)?;
        let Begun::Beginning { bytes, whole, validator, freshness, .. } = begun else {
            return Err(clause.violated("not modified, though no version was named"));
        };
        let have = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        clause.holds(have >= wanted, format!("{have} bytes where {wanted} were wanted"))?;
        // What had already come when it was enough may be more.
        clause.holds(have <= most + (64 << 10), format!("{have} bytes where {wanted} were wanted"))?;
        clause.holds(resource.bytes.starts_with(&bytes), "other bytes than the resource's")?;
        clause.holds(!whole || bytes == resource.bytes, "a part passes for the whole")?;
        clause.same(&(validator, freshness), &(resource.validator.clone(), resource.freshness))?;
    }
    let mut capped = fetch(&url, None);
    capped.limits.bytes_max = 20_000;
    let begun = clause.ok(harness.client().begin(capped, at_least(u64::MAX)).await)?;
    let ends = |begun: &Begun| matches!(begun, Begun::Beginning { bytes, whole, .. } if bytes.len() == 20_000 && !whole);
    clause.holds(ends(&begun), "the limit of bytes does not end the beginning")?;
    let small = harness.put("beginning-small", self::resource()).await;
    let begun = clause.ok(harness.client().begin(fetch(&small, None), at_least(u64::MAX)).await)?;
    let all =
        |begun: &Begun| matches!(begun, Begun::Beginning { bytes, whole: true, .. } if bytes == "0123456789");
    clause.holds(all(&begun), format!("{begun:?}"))?;
    let known = fetch(&url, Some(resource.validator));
    let confirmed = clause.ok(harness.client().begin(known, at_least(1)).await)?;
    clause.holds(matches!(confirmed, Begun::NotModified { .. }), "a known version is not confirmed")?;
    let missing = harness.client().begin(fetch(&format!("{url}/missing"), None), at_least(1)).await;
    clause.same(&missing, &Err(Error::Status { status: 404 }))
}

fn refused_urls(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a URL that may not be fetched is refused without asking anybody");
    for url in ["file:///etc/passwd", "ftp://origin.example/i.png"] {
        let refused = harness.client().check(url);
        clause.holds(refused.is_err_and(|error| error.refuses()), url.to_owned())?;
    }
    clause.ok(harness.client().check("https://origin.example/i.png"))
}
