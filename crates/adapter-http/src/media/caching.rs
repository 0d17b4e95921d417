//! How long an answer stays fresh (RFC 9111), as a cache that many clients share.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use ports::media_source::Freshness;

/// Longest lifetime believed.
const FRESH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Reads `Cache-Control`, `Expires`, `Age` and `Vary`; without explicit lifetime an answer is stale at once.
pub(super) fn freshness(headers: &HeaderMap) -> Freshness {
    let directives = Directives::read(headers);
    let no_store = directives.no_store || text(headers, &header::VARY).is_some_and(|it| it.trim() == "*");
    if directives.no_cache {
        return Freshness { fresh_for: Duration::ZERO, no_store };
    }
    let lifetime = directives.shared_age.or(directives.age).or_else(|| expires_in(headers)).unwrap_or(0);
    let age = text(headers, &header::AGE).and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    let fresh_for = Duration::from_secs(lifetime.saturating_sub(age)).min(FRESH_MAX);
    Freshness { fresh_for, no_store }
}

#[derive(Default)]
struct Directives {
    no_store: bool,
    no_cache: bool,
    age: Option<u64>,
    shared_age: Option<u64>,
}

impl Directives {
    fn read(headers: &HeaderMap) -> Self {
        let mut read = Self::default();
        let lines = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
        for directive in lines.flat_map(|line| line.split(',')) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let seconds = || value.trim().trim_matches('"').parse().ok().or(Some(0));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => read.no_store = true,
                // No credentials are ever sent, so "private" answers differ from nobody's; asked again all the same.
                "no-cache" | "private" => read.no_cache = true,
                "max-age" => read.age = seconds(),
                "s-maxage" => read.shared_age = seconds(),
                _ => {}
            }
        }
        read
    }
}

/// Seconds between `Date` and `Expires`, both of the origin's clock.
fn expires_in(headers: &HeaderMap) -> Option<u64> {
    let expires = httpdate::parse_http_date(text(headers, &header::EXPIRES)?).ok()?;
    let date = httpdate::parse_http_date(text(headers, &header::DATE)?).ok()?;
    Some(expires.duration_since(date).map_or(0, |it| it.as_secs()))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(lines: &[(&'static str, &'static str)], fresh_s: u64, no_store: bool) {
        let lines = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        assert_eq!(freshness(&headers), Freshness { fresh_for: Duration::from_secs(fresh_s), no_store });
    }

    #[test]
    fn lifetime_follows_the_headers() {
        check(&[], 0, false);
        check(&[("cache-control", "max-age=60")], 60, false);
        check(&[("cache-control", "public, Max-Age=\"60\""), ("age", "20")], 40, false);
        check(&[("cache-control", "max-age=60"), ("age", "90")], 0, false);
        check(&[("cache-control", "max-age=60, s-maxage=5")], 5, false);
        check(&[("cache-control", "max-age=60"), ("cache-control", "no-cache")], 0, false);
        check(&[("cache-control", "private, max-age=60")], 0, false);
        check(&[("cache-control", "no-store")], 0, true);
        check(&[("cache-control", "max-age=60"), ("vary", "*")], 60, true);
        check(&[("cache-control", "max-age=soon")], 0, false);
        check(&[("cache-control", "max-age=99999999999")], FRESH_MAX.as_secs(), false);
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check(&[date, ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")], 60, false);
        check(&[date, ("expires", "Sun, 06 Nov 1994 08:40:37 GMT")], 0, false);
        check(&[date, ("expires", "0")], 0, false);
    }
}
