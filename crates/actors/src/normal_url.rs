//! URLs as facts are kept under.

use std::sync::Arc;

use ports::media_source::Error;
use url::Url;

/// Query parameters that sign or vary a URL without naming another resource.
const SIGNATURES: [&str; 22] = [
    "signature",
    "sig",
    "expires",
    "key-pair-id",
    "policy",
    "awsaccesskeyid",
    "googleaccessid",
    "se",
    "sp",
    "sv",
    "sr",
    "st",
    "spr",
    "skoid",
    "sktid",
    "skt",
    "ske",
    "sks",
    "skv",
    "x-oss-signature",
    "token",
    "hmac",
];
const SIGNATURE_PREFIXES: [&str; 3] = ["x-amz-", "x-goog-", "x-oss-"];
const CACHE_BUSTERS: [&str; 5] = ["_", "cb", "cachebuster", "cache_buster", "nocache"];

/// Longest URL that is asked for, in bytes.
const URL_BYTES_MAX: usize = 16 << 10;
/// Longest text that is kept as it is, in bytes.
const KEPT_BYTES_MAX: usize = 256;

/// A normalised URL, and what of the original it does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NormalUrl {
    /// The key, at most 256 bytes: without fragment, signature and cache-buster parameters.
    pub(crate) key: Arc<str>,
    /// The dropped signature parameters. Facts got with others must be confirmed by the origin before they are used:
    /// else whoever knows a URL without its signature would see what the signature protects.
    pub(crate) credentials: Arc<str>,
}

/// Normalises a URL.
///
/// # Errors
/// It is too long, or none at all.
pub(crate) fn normalise(text: &str) -> Result<NormalUrl, Error> {
    let url = |reason: String| Error::Url { reason };
    if text.len() > URL_BYTES_MAX {
        return Err(url(format!("longer than {URL_BYTES_MAX} bytes")));
    }
    parse(text).ok_or_else(|| url("not an absolute url".to_owned()))
}

fn parse(text: &str) -> Option<NormalUrl> {
    let mut url = Url::parse(text).ok()?;
    url.set_fragment(None);
    let mut credentials = String::new();
    if let Some(query) = url.query() {
        let mut kept = Vec::new();
        for pair in query.split('&') {
            let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
            let signs = SIGNATURES.contains(&name.as_str())
                || SIGNATURE_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            if signs {
                credentials.push_str(pair);
                credentials.push('&');
            } else if !CACHE_BUSTERS.contains(&name.as_str()) {
                kept.push(pair);
            }
        }
        let kept = (!kept.is_empty()).then(|| kept.join("&"));
        url.set_query(kept.as_deref());
    }
    Some(NormalUrl { key: short(url.as_str()), credentials: short(&credentials) })
}

/// Bounds what a cache keeps of a text: long ones by their digest, which no one can make collide.
fn short(text: &str) -> Arc<str> {
    if text.len() <= KEPT_BYTES_MAX {
        return Arc::from(text);
    }
    Arc::from(
        blake3::derive_key("sightline url v1", text.as_bytes()).map(|byte| format!("{byte:02x}")).concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_parameters_are_dropped() {
        let cases = [
            ("HTTP://Host:80/a/../b?x=1#f", "http://host/b?x=1", ""),
            (
                "http://h/i.png?X-Amz-Date=1&w=2&X-Amz-Signature=s",
                "http://h/i.png?w=2",
                "X-Amz-Date=1&X-Amz-Signature=s&",
            ),
            ("http://h/i.png?_=99", "http://h/i.png", ""),
            ("http://h/i.png?a=%20&A=b&", "http://h/i.png?a=%20&A=b&", ""),
            ("http://h/i.png?sig=x", "http://h/i.png", "sig=x&"),
            ("http://h/i.png?signed=x", "http://h/i.png?signed=x", ""),
        ];
        for (text, key, credentials) in cases {
            let normal = normalise(text).unwrap();
            assert_eq!((&*normal.key, &*normal.credentials), (key, credentials), "{text}");
        }
        assert!(normalise("nonsense").is_err());
        assert!(normalise(&format!("http://h/{}", "x".repeat(URL_BYTES_MAX))).is_err());
        let long = |tail: &str| normalise(&format!("http://h/{}{tail}", "x".repeat(5000))).unwrap().key;
        assert_eq!((long("a").len(), long("a")), (64, long("a")));
        assert_ne!(long("a"), long("b"));
    }
}
