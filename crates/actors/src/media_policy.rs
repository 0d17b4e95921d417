//! How images behind a URL are treated: what an operator says of hosts and of URLs that never change.

use std::str::FromStr;

use identity::MediaId;
use url::{Host, Url};

use crate::normal_url::normalise;

/// What is done about an image behind a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Treatment {
    /// The router fetches it and hands it over: its identity is bound to its bytes.
    #[default]
    Fetch,
    /// The router reads its header, the engine fetches it.
    Probe,
    /// The router asks for nothing; the engine fetches it.
    Never,
}

/// What is done about images, by host; of several patterns that fit the narrowest decides.
#[derive(Clone, Debug, Default)]
pub struct MediaPolicy {
    otherwise: Treatment,
    /// The narrowest first.
    hosts: Vec<(HostPattern, Treatment)>,
    immutable: Vec<UrlPattern>,
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Of a host.
    #[error("{text:?} is no host pattern: a name, *.name, an address, or *, and perhaps :port")]
    Host {
        /// As given.
        text: String,
    },
    /// Of a treatment.
    #[error("{text:?} is no treatment of images: fetch, probe or never")]
    Treatment {
        /// As given.
        text: String,
    },
    /// Of a URL.
    #[error(
        "{text:?} is no URL pattern: http:// or https://, a host pattern, and a path in which * stands for anything"
    )]
    Url {
        /// As given.
        text: String,
    },
}

/// A host, or several: `name`, `*.name` (every name below it), an address, or `*`; with a port, that port only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    name: Name,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Any,
    Below(String),
    Only(String),
}

/// URLs: a scheme, a host pattern, and a path with its query in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPattern {
    scheme: String,
    host: HostPattern,
    path: String,
}

impl MediaPolicy {
    /// Makes a policy of what holds by host, and where no pattern fits, and of the URLs of which the operator promises
    /// that what is behind them never changes.
    #[must_use]
    pub fn new(
        otherwise: Treatment,
        mut hosts: Vec<(HostPattern, Treatment)>,
        immutable: Vec<UrlPattern>,
    ) -> Self {
        hosts.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.narrowness()));
        Self { otherwise, hosts, immutable }
    }

    /// Says whether every image is fetched, whatever its URL.
    #[must_use]
    pub fn fetches_all(&self) -> bool {
        self.otherwise == Treatment::Fetch
            && self.hosts.iter().all(|(_, treatment)| *treatment == Treatment::Fetch)
    }

    /// Decides about a URL; what is none is left to who fetches it, to be refused.
    #[must_use]
    pub fn treatment(&self, url: &str) -> Treatment {
        if self.hosts.is_empty() {
            return self.otherwise;
        }
        let Ok(url) = Url::parse(url) else { return Treatment::Fetch };
        let found = self.hosts.iter().find(|(pattern, _)| pattern.fits(&url));
        found.map_or(self.otherwise, |(_, treatment)| *treatment)
    }

    /// Names an image by its URL, if that never changes what is behind it.
    #[must_use]
    pub fn immutable_id(&self, url: &str) -> Option<MediaId> {
        if self.immutable.is_empty() {
            return None;
        }
        let normal = normalise(url).ok()?;
        let parsed = Url::parse(url).ok()?;
        self.immutable.iter().any(|pattern| pattern.fits(&parsed)).then(|| {
            let digest = blake3::derive_key("sightline media url v1", normal.key.as_bytes());
            MediaId::new(&blake3::Hash::from_bytes(digest).to_hex())
        })
    }
}

impl HostPattern {
    /// Orders patterns by how few hosts they fit.
    fn narrowness(&self) -> (u8, usize, bool) {
        let (kind, len) = match &self.name {
            Name::Any => (0, 0),
            Name::Below(name) => (1, name.len()),
            Name::Only(name) => (2, name.len()),
        };
        (kind, len, self.port.is_some())
    }

    fn fits(&self, url: &Url) -> bool {
        if self.port.is_some_and(|port| url.port_or_known_default() != Some(port)) {
            return false;
        }
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        match &self.name {
            Name::Any => !host.is_empty(),
            Name::Only(name) => host == name,
            Name::Below(name) => {
                host.strip_suffix(name.as_str()).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
            }
        }
    }
}

impl UrlPattern {
    fn fits(&self, url: &Url) -> bool {
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        url.scheme() == self.scheme
            && self.host.fits(url)
            && fits(&self.path, &format!("{}{query}", url.path()))
    }
}

/// Tells whether a text is the pattern, in which `*` stands for any text; in time by the product of their lengths.
fn fits(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

impl FromStr for Treatment {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        match text {
            "fetch" => Ok(Self::Fetch),
            "probe" => Ok(Self::Probe),
            "never" => Ok(Self::Never),
            _ => Err(Malformed::Treatment { text: text.to_owned() }),
        }
    }
}

impl FromStr for HostPattern {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::Host { text: text.to_owned() };
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') && (name.ends_with(']') || !name.contains(':')) => {
                (name, Some(port.parse().map_err(|_| malformed())?))
            }
            _ => (text, None),
        };
        let spelled = |name: &str| match Host::parse(name) {
            Ok(host) if !name.contains('*') => Ok(host.to_string().trim_end_matches('.').to_owned()),
            Ok(_) | Err(_) => Err(malformed()),
        };
        let name = match name.strip_prefix("*.") {
            _ if name == "*" => Name::Any,
            Some(below) => Name::Below(spelled(below)?),
            None => Name::Only(spelled(name)?),
        };
        Ok(Self { name, port })
    }
}

impl FromStr for UrlPattern {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::Url { text: text.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        if !matches!(scheme, "http" | "https") {
            return Err(malformed());
        }
        let (host, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
        let host = host.parse().map_err(|_| malformed())?;
        Ok(Self { scheme: scheme.to_owned(), host, path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_fit_whole_names_only() {
        let check = |pattern: &str, url: &str, expected: bool| {
            let fits = pattern.parse::<HostPattern>().unwrap().fits(&Url::parse(url).unwrap());
            assert_eq!(fits, expected, "{pattern} {url}");
        };
        check("a.example", "http://A.Example./x", true);
        check("a.example", "http://b.a.example/", false);
        check("*.a.example", "http://b.a.example/", true);
        check("*.a.example", "http://c.b.a.example/", true);
        check("*.a.example", "http://a.example/", false);
        check("*.a.example", "http://evila.example/", false);
        check("*.a.example", "http://evil.example/b.a.example", false);
        check("*", "http://anything/", true);
        check("a.example:8080", "http://a.example:8080/", true);
        check("a.example:8080", "http://a.example/", false);
        check("a.example:443", "https://a.example/", true);
        check("127.0.0.1", "http://0x7f.1/", true);
        check("[::1]:80", "http://[0:0::1]/", true);
        for bad in ["", "a b", "a.*.b", "*x", "a:b", "http://a"] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_narrowest_pattern_decides() {
        let hosts = vec![
            ("*.a.example".parse().unwrap(), Treatment::Fetch),
            ("x.a.example".parse().unwrap(), Treatment::Never),
            ("x.a.example:81".parse().unwrap(), Treatment::Probe),
        ];
        let policy = MediaPolicy::new(Treatment::Probe, hosts, Vec::new());
        assert_eq!(policy.treatment("http://x.a.example:81/"), Treatment::Probe);
        assert!(!policy.fetches_all() && MediaPolicy::default().fetches_all());
        assert_eq!(policy.treatment("http://x.a.example/"), Treatment::Never);
        assert_eq!(policy.treatment("http://y.a.example/"), Treatment::Fetch);
        assert_eq!(policy.treatment("http://b.example/"), Treatment::Probe);
        assert_eq!(policy.treatment("nonsense"), Treatment::Fetch);
        assert_eq!(MediaPolicy::default().treatment("http://h/"), Treatment::Fetch);
    }

    #[test]
    fn immutable_urls_are_named_by_themselves() {
        let immutable = vec!["https://*.cdn.example/blobs/*.png".parse().unwrap()];
        let policy = MediaPolicy::new(Treatment::Probe, Vec::new(), immutable);
        let id = |url: &str| policy.immutable_id(url);
        let named = id("https://a.cdn.example/blobs/1.png").unwrap();
        assert_eq!(named.as_str().len(), 64);
        assert_eq!(id("https://a.cdn.example:443/blobs/./1.png#x"), Some(named.clone()));
        assert_ne!(id("https://a.cdn.example/blobs/2.png"), Some(named.clone()));
        assert_ne!(prompt::media_id(b"https://a.cdn.example/blobs/1.png"), named);
        for other in [
            "http://a.cdn.example/blobs/1.png",
            "https://evil.example/x.cdn.example/blobs/1.png",
            "https://a.cdn.example/blobs/1.png?x",
            "https://a.cdn.example/other/1.png",
            "https://a.cdn.example.evil.example/blobs/1.png",
        ] {
            assert_eq!(id(other), None, "{other}");
        }
        for bad in ["", "ftp://a/*", "https://", "https:///x", "a.example/*", "https://a*b/"] {
            assert!(bad.parse::<UrlPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("a*a", "a", false),
            ("*b*", "abc", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }
}
