//! Where an engine listens.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// An engine's base URL, `http://host:port[/path]`; cheap to clone, equal by text.
#[derive(Clone)]
pub struct Endpoint(Arc<Parts>);

struct Parts {
    url: String,
    tls: bool,
    authority: Authority,
    port: u16,
    prefix: String,
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed engine url {url:?}: wants http://host:port")]
pub struct Malformed {
    /// As given.
    pub url: String,
}

impl Endpoint {
    /// Parses a base URL; a trailing slash is dropped.
    ///
    /// # Errors
    /// The text is not an `http` or `https` URL with a host and without query or credentials.
    pub fn parse(url: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed { url: url.to_owned() };
        let trimmed = url.trim_end_matches('/');
        let uri: Uri = trimmed.parse().map_err(|_| malformed())?;
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(malformed()),
        };
        let authority = uri.authority().filter(|it| !it.host().is_empty() && !it.as_str().contains('@'));
        let authority = authority.cloned().ok_or_else(malformed)?;
        if uri.query().is_some() {
            return Err(malformed());
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Parts { url: trimmed.to_owned(), tls, authority, port, prefix })))
    }

    /// Returns the base URL without a trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.url
    }

    /// Says whether the engine speaks TLS.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.0.tls
    }

    /// Returns host and port as they stand in the URL: the `host` header.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    /// Returns the host, without brackets if it is an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port, the scheme's own where the URL has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Returns the origin-form URI of a path below the endpoint.
    #[must_use]
    pub fn target(&self, path: &PathAndQuery) -> Uri {
        if self.0.prefix.is_empty() {
            return Uri::from(path.clone());
        }
        let joined = format!("{}{path}", self.0.prefix);
        joined.parse().unwrap_or_else(|_| Uri::from(path.clone()))
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.0.url == other.0.url
    }
}

impl Eq for Endpoint {}

impl std::hash::Hash for Endpoint {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.url.hash(state);
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_an_http_url_with_a_host() {
        let good = [
            ("http://127.0.0.1:8100", "127.0.0.1", 8100, false),
            ("http://[::1]:9/", "::1", 9, false),
            ("https://engine.example/base", "engine.example", 443, true),
        ];
        for (url, host, port, tls) in good {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!((endpoint.host(), endpoint.port(), endpoint.tls()), (host, port, tls));
        }
        for bad in ["", "engine:1", "ftp://a", "http://", "http://u:p@h", "http://h/?q=1", "file:///x"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn target_keeps_the_base_path() {
        let path = PathAndQuery::from_static("/v1/models?a=b");
        let with = Endpoint::parse("http://h:1/base/").unwrap();
        assert_eq!(with.target(&path).to_string(), "/base/v1/models?a=b");
        assert_eq!(Endpoint::parse("http://h:1").unwrap().target(&path).to_string(), "/v1/models?a=b");
    }
}
