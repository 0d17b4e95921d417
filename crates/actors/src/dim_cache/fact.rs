//! What is known of a URL.

use std::sync::Arc;
use std::time::Duration;

use identity::MediaId;
use media_geometry::ImageSize;
use ports::media_source::{Freshness, Validator};

use super::Error;

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
pub(crate) struct Fact<T> {
    pub(crate) outcome: Result<T, Error>,
    /// By what the origin can be asked whether it still holds; only validators that prove it.
    pub(crate) validator: Option<Validator>,
    /// The signature parameters it was got with.
    pub(crate) credentials: Arc<str>,
    /// When the answer was there, on the clock; zero where another frontend got it.
    pub(crate) learned: Duration,
    /// Until when it may be used without asking.
    pub(crate) fresh_until: Duration,
}

/// How much longer than before a fact must hold to be worth telling again.
const NEWS: Duration = Duration::from_secs(1);

impl<T: Clone + PartialEq> Fact<T> {
    /// Makes a fact of a failure, so that it is not asked about again at once.
    pub(crate) fn failed(error: Error, credentials: &Arc<str>, now: Duration, negative: Duration) -> Self {
        let fresh_until = now.saturating_add(error.keep(negative));
        Self {
            outcome: Err(error),
            validator: None,
            credentials: Arc::clone(credentials),
            learned: now,
            fresh_until,
        }
    }

    /// Says whether it would put a failure in the place of what somebody with other credentials was given: whoever has
    /// none must not make others lose what theirs open.
    pub(crate) fn spoils(&self, before: Option<&Self>) -> Option<&Error> {
        let before = before.filter(|before| before.outcome.is_ok() && before.credentials != self.credentials);
        before.and(self.outcome.as_ref().err())
    }

    /// Says whether other frontends have use for it: nobody's signature is behind it, it holds for a while or can be
    /// confirmed, and they have not been told.
    pub(crate) fn is_news(&self, before: Option<&Self>, now: Duration) -> bool {
        let holds = self.validator.is_some() || self.fresh_until > now;
        let known = before.is_some_and(|before| {
            before.outcome.as_ref().ok() == self.outcome.as_ref().ok()
                && before.validator == self.validator
                && self.fresh_until <= before.fresh_until.max(now).saturating_add(NEWS)
        });
        self.outcome.is_ok() && self.credentials.is_empty() && holds && !known
    }

    /// Makes one fact of the present one and of what another frontend says now; none where the present one stays.
    pub(crate) fn heard(present: Option<&Self>, mut heard: Self, now: Duration) -> Option<Self> {
        let Some(present) = present.filter(|present| present.outcome.is_ok()) else { return Some(heard) };
        let same = present.outcome == heard.outcome
            && present.validator == heard.validator
            && present.credentials == heard.credentials;
        if same {
            heard.fresh_until = heard.fresh_until.max(present.fresh_until);
            heard.learned = present.learned;
            return Some(heard);
        }
        // What was asked for just now is no older than what others tell.
        (present.learned.saturating_add(NEWS) < now).then_some(heard)
    }
}

impl<T: Clone> Fact<T> {
    /// Says whether it may be used without asking: it is fresh, or came while the caller waited.
    pub(crate) fn usable(&self, credentials: &str, now: Duration, since: Duration) -> bool {
        let fresh = now < self.fresh_until || self.learned >= since;
        fresh && &*self.credentials == credentials
    }

    /// Takes a new lifetime from an origin that confirmed it.
    pub(crate) fn confirmed(&self, credentials: &Arc<str>, learned: Duration, fresh_until: Duration) -> Self {
        let mut fact = self.clone();
        fact.credentials = Arc::clone(credentials);
        fact.learned = learned;
        fact.fresh_until = fresh_until;
        fact
    }
}

/// When an answer to a question becomes stale: the lifetime counts from the question.
pub(crate) fn fresh_until(asked: Duration, freshness: Freshness) -> Duration {
    if freshness.no_store { asked } else { asked.saturating_add(freshness.fresh_for) }
}

/// Keeps of a validator what proves that nothing changed: a strong `ETag`, else a `Last-Modified` that was at least
/// a minute old (a second write within its second would not show).
pub(crate) fn proving(validator: Validator, wall_s: u64) -> Option<Validator> {
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

    const NOW: Duration = Duration::from_secs(100);

    fn fact(value: u8, etag: Option<&str>, fresh_s: u64) -> Fact<u8> {
        Fact {
            outcome: Ok(value),
            validator: etag.map(|etag| Validator { etag: Some(etag.to_owned()), last_modified: None }),
            credentials: Arc::from(""),
            learned: Duration::from_secs(90),
            fresh_until: Duration::from_secs(fresh_s),
        }
    }

    #[test]
    fn only_what_is_new_and_lasting_is_told() {
        let new = fact(1, Some("\"a\""), 0);
        assert!(new.is_news(None, NOW) && !new.is_news(Some(&new), NOW));
        assert!(new.is_news(Some(&fact(2, Some("\"a\""), 0)), NOW));
        assert!(new.is_news(Some(&fact(1, Some("\"b\""), 0)), NOW));
        assert!(fact(1, Some("\"a\""), 160).is_news(Some(&new), NOW));
        assert!(!fact(1, None, 99).is_news(None, NOW) && fact(1, None, 101).is_news(None, NOW));
        let signed = Fact { credentials: Arc::from("sig=x&"), ..new.clone() };
        assert!(!signed.is_news(None, NOW));
        let failed =
            Fact::<u8> { outcome: Err(Error::NotAnImage { reason: String::new() }), ..fact(1, None, 200) };
        assert!(!failed.is_news(None, NOW));
    }

    #[test]
    fn newer_knowledge_stays() {
        let own = fact(1, None, 200);
        assert_eq!(Fact::heard(Some(&own), fact(2, None, 150), NOW).unwrap().outcome, Ok(2));
        let recent = Fact { learned: NOW, ..own.clone() };
        assert!(Fact::heard(Some(&recent), fact(2, None, 150), NOW).is_none());
        assert_eq!(Fact::heard(Some(&own), fact(1, None, 150), NOW).unwrap().fresh_until.as_secs(), 200);
        let failed = Fact::failed(Error::NotAnImage { reason: String::new() }, &Arc::from(""), NOW, NOW);
        assert_eq!(Fact::heard(Some(&failed), own.clone(), NOW).unwrap().outcome, Ok(1));
        let forged = Fact { credentials: Arc::from("sig=x&"), ..failed };
        assert!(forged.spoils(Some(&own)).is_some() && forged.spoils(None).is_none());
        assert!(own.spoils(Some(&forged)).is_none());
    }

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
