//! What is known of a URL.

use std::sync::Arc;
use std::time::Duration;

use identity::MediaId;
use media_geometry::ImageSize;
use ports::media_source::{Freshness, Validator};

/// What is known of an item's bytes, wherever they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Their identity.
    pub id: MediaId,
    /// The image's size as shown; none where the bytes are no image of a known format.
    pub size: Option<ImageSize>,
    /// How many they are.
    pub bytes: u64,
}

/// A cached answer of an origin, good or bad.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) outcome: Result<Known, super::Error>,
    /// By what the origin can be asked whether it still holds; only validators that prove it.
    pub(super) validator: Option<Validator>,
    /// The signature parameters it was got with.
    pub(super) credentials: Arc<str>,
    /// When the answer was there, on the clock.
    pub(super) learned: Duration,
    /// Until when it may be used without asking.
    pub(super) fresh_until: Duration,
}

impl Fact {
    /// Says whether it may be used without asking: it is fresh, or came while the caller waited.
    pub(super) fn usable(&self, credentials: &str, now: Duration, since: Duration) -> bool {
        let fresh = now < self.fresh_until || self.learned >= since;
        fresh && &*self.credentials == credentials
    }

    /// Takes a new lifetime from an origin that confirmed it.
    pub(super) fn confirmed(&self, credentials: &Arc<str>, learned: Duration, fresh_until: Duration) -> Self {
        let mut fact = self.clone();
        fact.credentials = Arc::clone(credentials);
        fact.learned = learned;
        fact.fresh_until = fresh_until;
        fact
    }
}

/// When an answer to a question becomes stale: the lifetime counts from the question.
pub(super) fn fresh_until(asked: Duration, freshness: Freshness) -> Duration {
    if freshness.no_store { asked } else { asked.saturating_add(freshness.fresh_for) }
}

/// Keeps of a validator what proves that nothing changed: a strong `ETag`, else a `Last-Modified` that was at least
/// a minute old (a second write within its second would not show).
pub(super) fn proving(validator: Validator, wall_s: u64) -> Option<Validator> {
    let strong = validator.etag.filter(|etag| etag.starts_with('"'));
    let settled = validator.last_modified.filter(|date| {
        httpdate::parse_http_date(date).is_ok_and(|date| {
            let age = date.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            age.saturating_add(60) <= wall_s
        })
    });
    match strong {
        Some(etag) => Some(Validator { etag: Some(etag), last_modified: None }),
        None => settled.map(|date| Validator { etag: None, last_modified: Some(date) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_young_validators_prove_nothing() {
        let proves = |etag: Option<&str>, modified: Option<&str>| {
            let validator =
                Validator { etag: etag.map(str::to_owned), last_modified: modified.map(str::to_owned) };
            proving(validator, 784_111_777 + 60).is_some()
        };
        assert!(proves(Some("\"a\""), None));
        assert!(!proves(Some("W/\"a\""), None));
        assert!(proves(None, Some("Sun, 06 Nov 1994 08:49:37 GMT")));
        assert!(!proves(None, Some("Sun, 06 Nov 1994 08:49:38 GMT")));
        assert!(!proves(None, Some("yesterday")));
        assert!(!proves(None, None));
    }
}
