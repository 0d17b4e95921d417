//! Who calls, and what they may see.

use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::api_error::ApiError;
use crate::config::KeyConfig;

/// Whoever sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The tenant; empty where no keys are configured.
    pub(crate) tenant: String,
    /// Whether routing headers, `/admin`, `/metrics` and `explain` are shown.
    pub(crate) operator: bool,
    /// Whether the caller may say where a request goes: operators, and everybody where there are no keys.
    pub(crate) steers: bool,
}

/// Checks bearer keys.
#[derive(Debug)]
pub(crate) struct Access {
    keys: Vec<Key>,
    /// Whether the listener is for operators, or only reachable from this machine.
    trusted: bool,
}

#[derive(Debug)]
struct Key {
    digest: [u8; 32],
    caller: Caller,
}

impl Access {
    pub(crate) fn new(keys: &[KeyConfig], trusted: bool) -> Self {
        let keys = keys.iter().map(|key| Key {
            digest: digest(key.key.as_bytes()),
            caller: Caller { tenant: key.tenant.clone(), operator: key.operator, steers: key.operator },
        });
        Self { keys: keys.collect(), trusted }
    }

    /// Finds out who calls; an error where keys are configured and none is presented.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        if self.keys.is_empty() {
            return Ok(Caller { tenant: String::new(), operator: self.trusted, steers: true });
        }
        let mut caller = self.find(headers).ok_or_else(ApiError::unauthorized)?.clone();
        caller.operator |= self.trusted;
        caller.steers |= self.trusted;
        Ok(caller)
    }

    /// Says whether the caller may see what is for operators.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> bool {
        self.trusted || self.find(headers).is_some_and(|caller| caller.operator)
    }

    /// Compares with every key, in the same time whichever matches.
    fn find(&self, headers: &HeaderMap) -> Option<&Caller> {
        let presented = digest(bearer(headers)?);
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.digest.ct_eq(&presented)) {
                found = Some(&key.caller);
            }
        }
        found
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// Keys are compared by digest: equal in length, and not kept in clear.
fn digest(key: &[u8]) -> [u8; 32] {
    blake3::derive_key("sightline api key v1", key)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn keys_name_tenants() {
        let key =
            |key: &str, operator| KeyConfig { key: key.to_owned(), tenant: format!("t-{key}"), operator };
        let access = Access::new(&[key("one", false), key("two", true)], false);
        let tenant =
            |value| access.caller(&headers(value)).map(|caller| (caller.tenant, caller.operator)).ok();
        assert_eq!(tenant("Bearer one"), Some(("t-one".to_owned(), false)));
        assert_eq!(tenant("bearer two"), Some(("t-two".to_owned(), true)));
        for wrong in ["Bearer three", "Bearer ", "Basic one", "one", "Bearer one two", ""] {
            assert_eq!(tenant(wrong), None, "{wrong}");
        }
        assert!(access.caller(&HeaderMap::new()).is_err());
    }

    #[test]
    fn operator_is_by_key_or_by_listener() {
        assert!(Access::new(&[], true).operator(&HeaderMap::new()));
        assert!(!Access::new(&[], false).operator(&HeaderMap::new()));
    }
}
