//! Who an agent is, for it to know its own card by.

use bytes::Bytes;
use identity::WorkerId;
use membership::Card;
use ports::StateStore;

/// An agent's id: 64 random bits as hexadecimal digits; empty where the system gave none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentId(String);

impl AgentId {
    /// Recalls the id under which a worker's agent was known before, or draws one and keeps it.
    pub(crate) async fn recall(store: &dyn StateStore, worker: &WorkerId) -> Self {
        let name = format!("agent/{worker}");
        let kept = store.load(&name).await.ok().flatten();
        if let Some(kept) = kept.and_then(|kept| String::from_utf8(kept.to_vec()).ok()) {
            return Self(kept);
        }
        let drawn = match getrandom::u64() {
            Ok(bits) => format!("{bits:016x}"),
            Err(error) => {
                tracing::warn!(%worker, %error, "agent has no id, and will not know its own card");
                return Self(String::new());
            }
        };
        if let Err(error) = store.save(&name, Bytes::from(drawn.clone())).await {
            tracing::warn!(%worker, %error, "agent's id cannot be kept");
        }
        Self(drawn)
    }

    /// Returns what the card says.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what tells this agent's choices from those of others at the same moment.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.0, 16).unwrap_or_default()
    }

    /// Tells whether a card is this agent's.
    pub(crate) fn holds(&self, card: &Card) -> bool {
        !self.0.is_empty() && self.0 == card.agent
    }
}

#[cfg(test)]
mod tests {
    use identity::ModelName;
    use ports::InMemoryStateStore;

    use super::*;

    #[tokio::test]
    async fn an_agent_knows_its_card_where_its_state_is() {
        let (worker, store) = (WorkerId::new("w0"), InMemoryStateStore::default());
        let first = AgentId::recall(&store, &worker).await;
        let blank = Card::new(worker.clone(), ModelName::new("m"), "http://h", 16);
        let card = Card { agent: first.as_str().to_owned(), ..blank.clone() };
        assert_eq!(first.as_str().len(), 16);
        assert!(AgentId::recall(&store, &worker).await.holds(&card));
        assert!(!AgentId::recall(&store, &WorkerId::new("w1")).await.holds(&card), "ids are of one worker");
        assert!(!AgentId::recall(&InMemoryStateStore::default(), &worker).await.holds(&card));
        for id in [first, AgentId(String::new())] {
            assert!(!id.holds(&blank), "a card that names no agent is nobody's");
        }
    }
}
