//! The contract of [`crate::MediaSource`].

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Clause, Violation};
use crate::MediaSource;
use crate::media_source::memory::Resource;
use crate::media_source::{Error, Fetch, Fetched, Freshness, Limits, Validator};

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
    limits(harness).await
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
    let fetched = clause.ok(clause.soon(harness.client().fetch(fetch(&url, None))).await?)?;
    let Fetched::Body { bytes, validator, freshness, .. } = fetched else {
        return Err(clause.violated("not modified, though no version was named"));
    };
    let expected = resource();
    clause.same(&bytes, &expected.bytes)?;
    clause.same(&validator, &expected.validator)?;
    clause.same(&freshness, &expected.freshness)?;
    clause.same(&(harness.requests().await - before), &1)?;
    let missing = harness.client().fetch(fetch(&format!("{url}/missing"), None)).await;
    clause.same(&missing, &Err(Error::Status { status: 404 }))
}

async fn known_versions(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("a known version is confirmed, another one comes whole");
    let url = harness.put("known", resource()).await;
    let known = Some(resource().validator);
    let confirmed = clause.ok(clause.soon(harness.client().fetch(fetch(&url, known.clone()))).await?)?;
    clause.holds(matches!(confirmed, Fetched::NotModified { .. }), format!("{confirmed:?}"))?;
    let mut changed = resource();
    changed.validator.etag = Some("\"v2\"".to_owned());
    changed.bytes = Bytes::from_static(b"new");
    let url = harness.put("known", changed).await;
    let fetched = clause.ok(clause.soon(harness.client().fetch(fetch(&url, known))).await?)?;
    clause.holds(matches!(&fetched, Fetched::Body { bytes, .. } if bytes == "new"), format!("{fetched:?}"))
}

async fn limits(harness: &dyn Harness) -> Result<(), Violation> {
    let clause = Clause("no more than the limit is taken");
    let url = harness.put("large", resource()).await;
    let mut small = fetch(&url, None);
    small.limits.bytes_max = 9;
    clause.same(&harness.client().fetch(small.clone()).await, &Err(Error::TooLarge { bytes_max: 9 }))?;
    small.limits.bytes_max = 10;
    clause.ok(harness.client().fetch(small).await).map(|_| ())
}
