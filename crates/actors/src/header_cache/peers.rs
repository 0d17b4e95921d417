//! What other frontends tell of images by their headers, and are told.

use std::sync::Arc;
use std::time::Duration;

use media_geometry::ImageSize;
use wire::fact;

use super::{HeaderCache, Inner, NAMES_MAX, Seen};
use crate::dim_cache::fact::Fact;
use crate::gossip::{Digest, validator_of};

impl HeaderCache {
    /// Takes in what another frontend learned of a URL just now, to be used for no longer than `fresh_for`.
    pub(crate) async fn hear_fact(&self, heard: &fact::Fact, fresh_for: Duration) {
        if heard.item.id.is_some() {
            return;
        }
        let now = self.0.clock.now();
        let present = self.0.facts.get(&heard.url).await;
        let mut seen = self.0.seen(
            heard.item.size.map(|(width, height)| ImageSize::new(width, height)),
            heard.engine_ids.iter().take(NAMES_MAX).cloned().collect(),
        );
        let validator = heard.validator.as_ref().map(validator_of);
        if let Some(own) = present.as_deref()
            && let Ok(known) = &own.outcome
            && validator.is_some()
            && own.validator == validator
            && known.size == seen.size
        {
            // The same version: who tells of it may know other engines' names.
            let ours =
                known.names.iter().filter(|(model, _)| seen.names.iter().all(|(other, _)| other != model));
            seen.names = ours.chain(seen.names.iter()).take(NAMES_MAX).cloned().collect();
            seen.number = known.number;
            let mut fact = own.clone();
            fact.outcome = Ok(seen);
            if fact.credentials.is_empty() {
                fact.fresh_until = fact.fresh_until.max(now.saturating_add(fresh_for));
            }
            self.0.facts.insert(heard.url, Arc::new(fact)).await;
            return;
        }
        let fact = Fact {
            outcome: Ok(seen),
            validator,
            credentials: Arc::from(""),
            learned: Duration::ZERO,
            fresh_until: now.saturating_add(fresh_for),
        };
        if let Some(fact) = Fact::heard(present.as_deref(), fact, now) {
            self.0.facts.insert(heard.url, Arc::new(fact)).await;
        }
    }
}

impl Inner {
    /// Tells other frontends, if it is news.
    pub(super) fn tell(&self, url: Digest, before: Option<&Fact<Seen>>, fact: &Fact<Seen>) {
        if let (Ok(seen), true) = (&fact.outcome, fact.is_news(before, self.clock.now())) {
            let size = seen.size.map(|size| (size.width, size.height));
            self.config.gossip.tell(url, fact, fact::Item { id: None, size, bytes: 0 }, &seen.names);
        }
    }
}
