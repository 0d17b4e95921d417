//! Names of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The header that carries a request's name, in and out.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest name taken from a client, in bytes.
const GIVEN_BYTES_MAX: usize = 128;

/// Makes names that show which frontend gave them: `<frontend>-<16 hex digits>`.
#[derive(Debug)]
pub(crate) struct RequestIds {
    frontend: String,
    seed: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(frontend: &str, seed: u64) -> Self {
        Self { frontend: frontend.to_owned(), seed, next: AtomicU64::new(0) }
    }

    /// Takes the client's name for the request if it is a plain one, else makes one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> String {
        let given = headers.get(REQUEST_ID).map(|value| value.as_bytes());
        let plain =
            |id: &&[u8]| (1..=GIVEN_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
        match given.filter(plain).map(std::str::from_utf8) {
            Some(Ok(given)) => given.to_owned(),
            Some(Err(_)) | None => {
                let count = self.next.fetch_add(1, Ordering::Relaxed);
                format!("{}-{:016x}", self.frontend, xxh3_64_with_seed(&count.to_le_bytes(), self.seed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn plain_names_are_taken_and_others_replaced() {
        let ids = RequestIds::new("f0", 7);
        let of = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            ids.of(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(of("abc-1"), "abc-1");
        for odd in ["", "a b", &"x".repeat(129)] {
            assert!(of(odd).starts_with("f0-"), "{odd}");
        }
        assert_ne!(ids.of(&HeaderMap::new()), ids.of(&HeaderMap::new()));
    }
}
