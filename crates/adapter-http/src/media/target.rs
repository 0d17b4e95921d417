//! A URL that may be fetched, and the addresses it may be fetched from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use media_probe::AddressPolicy;
use ports::media_source::Error;
use url::{Host, Url};

use super::names::Names;

/// An `http` or `https` URL with a host and without credentials.
#[derive(Debug)]
pub(super) struct Target {
    url: Url,
    host: String,
    port: u16,
    literal: Option<IpAddr>,
}

impl Target {
    /// Parses as browsers do (WHATWG), which turns every spelling of an IPv4 address into that address.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let url = Url::parse(text).map_err(|error| Error::Url { reason: error.to_string() })?;
        Self::check(url)
    }

    pub(super) fn check(url: Url) -> Result<Self, Error> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Scheme { scheme: url.scheme().to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Url { reason: "credentials in a url are not allowed".to_owned() });
        }
        let (host, literal) = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => (name.to_owned(), None),
            Some(Host::Ipv4(address)) => (address.to_string(), Some(IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => (address.to_string(), Some(IpAddr::V6(address))),
            Some(Host::Domain(_)) | None => return Err(Error::Url { reason: "no host".to_owned() }),
        };
        let port = url.port_or_known_default().unwrap_or(80);
        Ok(Self { url, host, port, literal })
    }

    /// Resolves the host and keeps the addresses that the policy allows.
    ///
    /// What is returned is what gets connected to: the name is not resolved a second time, so it cannot rebind.
    pub(super) async fn addresses(
        &self,
        policy: &AddressPolicy,
        names: &Names,
    ) -> Result<Vec<SocketAddr>, Error> {
        let found: Vec<SocketAddr> = match self.literal {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => names.resolve(&self.host, self.port).await.map_err(|_| self.unresolved())?,
        };
        let mut denied = None;
        let mut allowed = Vec::with_capacity(found.len());
        for address in found {
            match policy.allowed(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(reason) => denied = Some(reason),
            }
        }
        match denied {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(reason) => Err(Error::Denied { host: self.host.clone(), reason: reason.to_string() }),
            None => Err(self.unresolved()),
        }
    }

    /// Tells whether the host is a name of the machine that asks, whichever that is.
    fn is_own_name(&self) -> bool {
        let host = self.host.trim_end_matches('.');
        ["localhost", "localdomain"].into_iter().any(|name| {
            host.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        })
    }

    /// Says that the name does not resolve; a name that means whoever resolves it is refused, since an engine that is
    /// given the URL may find itself by it (RFC 6761 §6.3).
    fn unresolved(&self) -> Error {
        let host = self.host.clone();
        if self.is_own_name() {
            Error::Denied { host, reason: "loopback".to_owned() }
        } else {
            Error::Unresolved { host }
        }
    }

    /// Judges the address that the URL spells, if it spells one: a number, or a name of the machine itself.
    pub(super) fn check_literal(&self, policy: &AddressPolicy) -> Result<(), Error> {
        let own = || self.is_own_name().then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let Some(address) = self.literal.or_else(own) else { return Ok(()) };
        let denied = |reason: media_probe::Denied| Error::Denied {
            host: self.host.clone(),
            reason: reason.to_string(),
        };
        policy.allowed(address).map_err(denied)
    }

    /// Returns the host, IPv6 addresses without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the name that the certificate must have, if the URL wants TLS.
    pub(super) fn tls_name(&self) -> Option<&str> {
        (self.url.scheme() == "https").then_some(self.host.as_str())
    }

    /// Returns the `host` header's value.
    pub(super) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns path and query.
    pub(super) fn path(&self) -> String {
        self.url
            .query()
            .map_or_else(|| self.url.path().to_owned(), |query| format!("{}?{query}", self.url.path()))
    }

    /// Resolves a redirect's location; none if it is no URL.
    pub(super) fn join(&self, location: &str) -> Option<Url> {
        self.url.join(location).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_without_credentials_are_targets() {
        for good in ["http://a/", "https://a.example:8443/x?y=1", "http://[2001:db8::1]/", "HTTP://0x7f.1/"] {
            assert!(Target::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "//a/b",
            "file:///etc/passwd",
            "ftp://a/",
            "gopher://a/",
            "data:,x",
            "http://",
            "http:///",
            "http://u@a/",
            "http://u:p@a/",
            "http://:p@a/",
            "http://a b/",
            "javascript:1",
            "unix:/x",
        ] {
            // "http:///a" names host "a" to a browser, so it is absent here.
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn authority_and_path_are_as_in_the_url() {
        let target = Target::parse("http://[::1]:81/a%20b?c=d#e").unwrap();
        assert_eq!((target.authority().as_str(), target.path().as_str()), ("[::1]:81", "/a%20b?c=d"));
        assert_eq!(Target::parse("http://a:80").unwrap().authority(), "a");
    }
}
