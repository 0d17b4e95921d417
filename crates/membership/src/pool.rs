//! Pools: workers of one model that turn a request into the same keys.

use std::collections::BTreeMap;

use identity::WorkerId;

use crate::card::{Artefacts, Card, TemplateOptions};

/// What the cards of one pool agree on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    /// Tokens per block.
    pub block_size: u32,
    /// Digests of tokenizer, template and configuration.
    pub artefacts: Artefacts,
    /// Template and media options of the engines.
    pub template: TemplateOptions,
    /// Fingerprint of the secret that enters keys.
    pub secret_fingerprint: u64,
}

impl PoolKey {
    /// Reads what decides the pool from a card.
    #[must_use]
    pub fn of(card: &Card) -> Self {
        Self {
            block_size: card.block_size,
            artefacts: card.artefacts.clone(),
            template: card.template.clone(),
            secret_fingerprint: card.secret_fingerprint,
        }
    }
}

/// Workers of one model whose cards agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What they agree on.
    pub key: PoolKey,
    /// Their names, ascending.
    pub workers: Vec<WorkerId>,
    /// Their share of the model's ranks, in thousandths.
    pub weight_permille: u32,
}

/// Splits the cards of one model into pools, the heaviest first, then by key.
///
/// More than one pool means that cards disagree, which is worth a report.
#[must_use]
pub fn pools<'a>(cards: impl IntoIterator<Item = &'a Card>) -> Vec<Pool> {
    let mut grouped: BTreeMap<PoolKey, (Vec<WorkerId>, usize)> = BTreeMap::new();
    let mut ranks_total = 0_usize;
    for card in cards {
        let (workers, ranks) = grouped.entry(PoolKey::of(card)).or_default();
        workers.push(card.worker.clone());
        *ranks += card.ranks.len();
        ranks_total += card.ranks.len();
    }
    let mut pools: Vec<Pool> = grouped
        .into_iter()
        .map(|(key, (mut workers, ranks))| {
            workers.sort();
            let weight_permille = u32::try_from(ranks * 1000 / ranks_total.max(1)).unwrap_or(1000);
            Pool { key, workers, weight_permille }
        })
        .collect();
    pools.sort_by(|a, b| b.weight_permille.cmp(&a.weight_permille).then_with(|| a.key.cmp(&b.key)));
    pools
}

#[cfg(test)]
mod tests {
    use identity::ModelName;

    use super::*;

    fn card(worker: &str, block_size: u32, template: &str) -> Card {
        let mut card = Card::new(WorkerId::new(worker), ModelName::new("m"), "http://localhost", block_size);
        card.artefacts.template = template.to_owned();
        card
    }

    #[test]
    fn agreeing_cards_share_a_pool() {
        let cards = [card("b", 16, "t"), card("a", 16, "t")];
        let pools = pools(&cards);
        assert_eq!(pools.len(), 1);
        assert_eq!(pools[0].workers, [WorkerId::new("a"), WorkerId::new("b")]);
        assert_eq!(pools[0].weight_permille, 1000);
    }

    #[test]
    fn engines_with_other_media_options_are_another_pool() {
        let mut other = card("b", 16, "t");
        other.template.media_kwargs = r#"{"max_pixels":100}"#.to_owned();
        assert_eq!(pools([&card("a", 16, "t"), &other]).len(), 2);
    }

    #[test]
    fn disagreeing_cards_split_by_weight() {
        let cards = [card("a", 32, "t"), card("b", 16, "t"), card("c", 16, "t"), card("d", 16, "u")];
        let pools = pools(&cards);
        let shape: Vec<(u32, usize, u32)> = pools
            .iter()
            .map(|pool| (pool.key.block_size, pool.workers.len(), pool.weight_permille))
            .collect();
        assert_eq!(shape, [(16, 2, 500), (16, 1, 250), (32, 1, 250)]);
    }
}
