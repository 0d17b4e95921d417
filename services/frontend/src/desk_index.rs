//! Where a model's index is: a replica in this process, or indexers elsewhere.

use actors::replicator::Tally;
use actors::{HolderView, IndexerHandle, RemoteIndex, ReplicatorHandle};
use block_index::{Branch, Stats};
use identity::{Holder, ModelName};
use serde_json::{Value, json};

use crate::api_error::ApiError;

/// A model's index as this frontend reaches it; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum DeskIndex {
    /// A replica, and what keeps it.
    Here { index: IndexerHandle, replicator: ReplicatorHandle },
    /// Indexers.
    Elsewhere { remote: RemoteIndex, model: ModelName },
}

impl DeskIndex {
    /// Finds a holder.
    pub(crate) fn holder(&self, holder: &Holder) -> Option<HolderView> {
        match self {
            Self::Here { index, .. } => index.view().holder(holder).cloned(),
            Self::Elsewhere { remote, model } => remote.roster(model)?.holder(holder).cloned(),
        }
    }

    /// Lists the holders in their order.
    pub(crate) fn holders(&self) -> Vec<(Holder, HolderView)> {
        let owned = |(holder, known): (&Holder, &HolderView)| (holder.clone(), known.clone());
        let mut holders: Vec<_> = match self {
            Self::Here { index, .. } => index.view().holders().map(owned).collect(),
            Self::Elsewhere { remote, model } => match remote.roster(model) {
                Some(roster) => roster.holders().map(owned).collect(),
                None => Vec::new(),
            },
        };
        holders.sort_by(|(one, _), (two, _)| one.cmp(two));
        holders
    }

    /// Tells whether the replica was ready once, or an indexer is.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Here { index, .. } => index.is_ready(),
            Self::Elsewhere { remote, model } => remote.roster(model).is_some(),
        }
    }

    /// Returns the replica's agreement with the agents, or an indexer's; none is no agreement.
    pub(crate) fn agreement(&self) -> f64 {
        match self {
            Self::Here { index, .. } => index.view().agreement(),
            Self::Elsewhere { remote, model } => remote.roster(model).map_or(0.0, |it| it.agreement()),
        }
    }

    /// Measures the index, where it is here.
    pub(crate) async fn stats(&self) -> Option<Stats> {
        match self {
            Self::Here { index, .. } => index.stats().await.ok(),
            Self::Elsewhere { .. } => None,
        }
    }

    /// Counts what the replica did, where it is here.
    pub(crate) async fn tally(&self) -> Option<Tally> {
        match self {
            Self::Here { replicator, .. } => replicator.tally().await.ok(),
            Self::Elsewhere { .. } => None,
        }
    }

    /// Lists the tree's runs.
    pub(crate) async fn tree(&self, depth: u32, limit: usize) -> Result<Vec<Value>, ApiError> {
        let Self::Here { index, .. } = self else {
            return Err(ApiError::not_found(
                "index_elsewhere",
                "this frontend keeps no index: ask an indexer",
            ));
        };
        let branches = index.tree(depth, limit).await.map_err(|error| {
            ApiError::unavailable("index_unavailable", "the index did not answer").cause(error)
        })?;
        let view = index.view();
        let run = |branch: &Branch| {
            let holders = branch.holders.iter().filter_map(|(id, blocks)| {
                let holder = view.holder_of(*id)?;
                Some(json!({"worker": holder.worker.as_str(), "rank": holder.rank.0, "blocks": blocks}))
            });
            json!({
                "level": branch.level,
                "depth": branch.depth,
                "first": branch.first.to_string(),
                "blocks": branch.blocks,
                "children": branch.children,
                "holders": holders.collect::<Vec<_>>(),
            })
        };
        Ok(branches.iter().map(run).collect())
    }
}
