//! Facts without bytes: what routing needs, and what other frontends tell.

use std::sync::Arc;
use std::time::Duration;

use media_geometry::ImageSize;
use wire::fact;

use super::fact::{Fact, Known};
use super::{Allowance, DimCache, Error};
use crate::gossip::validator_of;
use crate::normal_url::normalise;

impl DimCache {
    /// Finds identity and size of what is behind a URL, and says whether its origin was asked: a fresh fact does,
    /// whether its bytes are here or not.
    ///
    /// # Errors
    /// As for [`DimCache::fetch`].
    pub async fn know(&self, url: &str, allowance: &Allowance) -> Result<(Known, bool), Error> {
        let normal = normalise(url)?;
        let now = self.0.clock.now();
        if let Some(fact) = self.0.facts.get(&self.0.config.gossip.url(&normal)).await
            && fact.usable(&normal.credentials, now, now)
        {
            return fact.outcome.clone().map(|known| (known, false));
        }
        self.fetch(url, allowance).await.map(|item| (item.known, item.fetched))
    }

    /// Takes in what another frontend learned of a URL just now, to be used for no longer than `fresh_for`.
    pub(crate) async fn hear_fact(&self, heard: &fact::Fact, fresh_for: Duration) {
        let Some(known) = known(&heard.item) else { return };
        let now = self.0.clock.now();
        let fact = Fact {
            outcome: Ok(known),
            validator: heard.validator.as_ref().map(validator_of),
            credentials: Arc::from(""),
            learned: Duration::ZERO,
            fresh_until: now.saturating_add(fresh_for),
        };
        let present = self.0.facts.get(&heard.url).await;
        if let Some(fact) = Fact::heard(present.as_deref(), fact, now) {
            self.0.facts.insert(heard.url, Arc::new(fact)).await;
        }
    }

    /// Takes in what a tenant's own name stands for, as another frontend found.
    pub(crate) async fn hear_name(&self, heard: &fact::Name) {
        if let Some(known) = known(&heard.item) {
            self.0.aliases.insert(heard.name, known).await;
        }
    }
}

fn known(item: &fact::Item) -> Option<Known> {
    let size = item.size.map(|(width, height)| ImageSize::new(width, height));
    Some(Known { id: item.id.clone()?, size, bytes: item.bytes })
}
