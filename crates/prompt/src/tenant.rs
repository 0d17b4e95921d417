//! What keeps one tenant's cache apart from all others'.

use std::fmt;

use identity::MediaId;

/// Context of the key derivation; changing it renames every isolated tenant's cache.
const CONTEXT: &str = "sightline tenant v1";

/// A tenant's own namespace in engines: it names media and salts prompts so that no two tenants' names ever meet.
///
/// `key = blake3::derive_key("sightline tenant v1", len(secret) ‖ secret ‖ len(tenant) ‖ tenant)`, lengths as u64 LE. With
/// a secret nobody outside the cluster can compute the names of a tenant, not even one who knows how it is called.
#[derive(Clone, PartialEq, Eq)]
pub struct TenantKey([u8; 32]);

impl fmt::Debug for TenantKey {
    /// Shows nothing: the names are made of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantKey")
    }
}

impl TenantKey {
    /// Derives a tenant's key; `secret` is the cluster's.
    #[must_use]
    pub fn derive(secret: &str, tenant: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for text in [secret, tenant] {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the tenant's name for bytes whose id is `content`: 64 hex digits.
    #[must_use]
    pub fn media_id(&self, content: &MediaId) -> MediaId {
        MediaId::new(&self.name("media", content.as_str()))
    }

    /// Returns the tenant's name for media that only the client has a name for: 64 hex digits, never those of bytes.
    #[must_use]
    pub fn media_name(&self, client_uuid: &str) -> MediaId {
        MediaId::new(&self.name("uuid", client_uuid))
    }

    /// Returns the `cache_salt` under which the tenant's prompts are cached, by the client's own: 64 hex digits.
    #[must_use]
    pub fn cache_salt(&self, given: Option<&str>) -> String {
        self.name("salt", given.unwrap_or_default())
    }

    /// `keyed_hash(key, kind ‖ 0x1f ‖ text)`; no kind holds a 0x1f.
    fn name(&self, kind: &'static str, text: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(kind.as_bytes());
        hasher.update(b"\x1f");
        hasher.update(text.as_bytes());
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_names_meet() {
        let mut names = BTreeSet::new();
        // Spellings that would meet if texts were only joined.
        let owners = [("", "ab"), ("a", "b"), ("ab", ""), ("", "a\u{1f}b"), ("", "a"), ("", "b")];
        for (secret, tenant) in owners {
            let key = TenantKey::derive(secret, tenant);
            for text in ["", "x", "salt\u{1f}x", "y"] {
                names.insert(key.cache_salt(Some(text)));
                names.insert(key.media_id(&MediaId::new(text)).as_str().to_owned());
                names.insert(key.media_name(text).as_str().to_owned());
            }
        }
        assert_eq!(names.len(), owners.len() * 4 * 3);
        assert!(names.iter().all(|name| name.len() == 64 && name.bytes().all(|it| it.is_ascii_hexdigit())));
    }

    #[test]
    fn a_tenant_is_the_same_everywhere() {
        let key = TenantKey::derive("s", "t");
        assert_eq!(key, TenantKey::derive("s", "t"));
        assert_eq!(key.cache_salt(None), key.cache_salt(Some("")));
        assert_eq!(format!("{key:?}"), "TenantKey");
    }
}
