//! Gives a tenant's media names of its own.

use identity::MediaId;
use prompt::{ChatRequest, TenantKey};

use super::{Origin, Resolved};

impl Resolved {
    /// Puts the tenant's names in place of those that all share.
    ///
    /// Facts stay by content: what a URL leads to is the same for all, and an id of bytes is turned into a tenant's
    /// by one hash. Items whose identity the engine makes itself keep it: there the salt alone keeps tenants apart.
    /// A client's own name for what the router does not read is replaced too, since engines would take one tenant's for
    /// another's.
    #[must_use]
    pub fn for_tenant(mut self, request: &ChatRequest, key: &TenantKey) -> Self {
        for edit in &mut self.edits {
            let Some(uuid) = &mut edit.uuid else { continue };
            let own = key.media_id(&MediaId::new(uuid));
            own.as_str().clone_into(uuid);
            for fact in self.facts.iter_mut().filter(|fact| fact.index == edit.index) {
                fact.id = Some(own.clone());
            }
            for item in self.items.iter_mut().filter(|item| item.index == edit.index) {
                if let Some(known) = &mut item.known {
                    known.id = own.clone();
                }
                if let Some(passed) = &mut item.passed {
                    passed.id = Some(own.clone());
                }
            }
        }
        let named = self.items.iter().filter(|item| item.origin == Origin::Named);
        self.payload_free = named.filter_map(|item| Some(item.known.as_ref()?.id.key())).collect();
        for part in request.media() {
            let unread = self.items.get(part.index).is_some_and(|item| item.origin == Origin::Opaque);
            let edit = self.edits.iter_mut().find(|edit| edit.index == part.index && unread);
            if let (Some(uuid), Some(edit)) = (&part.client_uuid, edit) {
                edit.uuid = Some(key.media_name(uuid).as_str().to_owned());
                edit.unnames = false;
            }
        }
        self
    }
}
