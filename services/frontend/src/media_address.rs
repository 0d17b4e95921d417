//! Where engines get media from this frontend.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{bail, ensure};
use bytes::Bytes;

use crate::media_token::{Refused, TokenKey};

/// The media listener as engines reach it; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MediaAddress {
    /// Scheme and authority.
    base: Arc<str>,
    key: Arc<TokenKey>,
}

impl MediaAddress {
    /// Names a listener by what engines are to call it, else by where it is bound.
    ///
    /// # Errors
    /// Nothing is advertised and the bound address is none that can be asked; or what is advertised is no base URL.
    pub(crate) fn new(bound: SocketAddr, advertised: Option<&str>) -> anyhow::Result<Self> {
        let base = match advertised {
            None if bound.ip().is_unspecified() => {
                bail!(
                    "media.advertise must name the media listener: {bound} is no address that engines can ask"
                )
            }
            None => format!("http://{bound}"),
            Some(base) if base.contains("://") => base.trim_end_matches('/').to_owned(),
            Some(authority) => format!("http://{authority}"),
        };
        let plain = base.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\?#".contains(&byte));
        ensure!(
            plain && (base.starts_with("http://") || base.starts_with("https://")),
            "media.advertise {base:?} is neither HOST:PORT nor an http URL"
        );
        Ok(Self { base: Arc::from(base), key: Arc::new(TokenKey::draw()?) })
    }

    /// Returns scheme and authority.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Spells the URL that opens an item for a while.
    pub(crate) fn url(&self, name: &str, now_s: u64) -> Bytes {
        Bytes::from(format!("{}/media/{name}?t={}", self.base, self.key.token(name, now_s)))
    }

    /// Checks the query by which an item is asked for.
    pub(crate) fn check(&self, name: &str, query: Option<&str>, now_s: u64) -> Result<(), Refused> {
        let token = query.and_then(|query| query.strip_prefix("t=")).ok_or(Refused::Forged)?;
        self.key.check(name, token, now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_what_engines_can_ask() {
        let base = |bound: &str, advertised: Option<&str>| {
            MediaAddress::new(bound.parse().unwrap(), advertised).map(|address| address.base.to_string()).ok()
        };
        assert_eq!(base("127.0.0.1:81", None).as_deref(), Some("http://127.0.0.1:81"));
        assert_eq!(base("[::1]:81", None).as_deref(), Some("http://[::1]:81"));
        assert_eq!(base("0.0.0.0:81", None), None);
        assert_eq!(base("0.0.0.0:81", Some("front:81")).as_deref(), Some("http://front:81"));
        assert_eq!(base("0.0.0.0:81", Some("https://front/")).as_deref(), Some("https://front"));
        for wrong in ["ftp://front", "front:81?x", "fr\"ont", "http://a b"] {
            assert_eq!(base("0.0.0.0:81", Some(wrong)), None, "{wrong}");
        }
    }
}
