//! What placement answers, and what must hold of it.

use identity::Holder;

use crate::candidate::Why;
use crate::cost::{CostMs, Work};
use crate::doubt::Doubt;
use crate::policy::Policy;

/// Why a request went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The client named the worker.
    Direct,
    /// The session lives there.
    Affinity,
    /// The chosen holder has cached tokens.
    Kv,
    /// By load, or by a policy that ignores the cache.
    Load,
}

impl Reason {
    /// Returns the reason's name in headers and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Affinity => "affinity",
            Self::Kv => "kv",
            Self::Load => "load",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What placement found out about one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Appraisal {
    /// The holder.
    pub holder: Holder,
    /// Why it cannot serve the request; none when it can.
    pub why: Option<Why>,
    /// The request's work there.
    pub work: Work,
    /// Blocks among `work.cached_blocks` that earlier dispatches are expected to bring.
    pub pending_blocks: u32,
    /// Why its blocks count less than the index says; none where they count.
    pub doubt: Option<Doubt>,
    /// How many of the request's media items it had lately.
    pub media_resident: u32,
    /// What it is predicted to cost.
    pub cost: CostMs,
}

impl Appraisal {
    /// Tells whether the candidate can serve the request.
    #[must_use]
    pub const fn eligible(&self) -> bool {
        self.why.is_none()
    }
}

/// A placed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Index of the chosen holder among the appraisals.
    pub chosen: usize,
    /// Why it was chosen.
    pub reason: Reason,
    /// The policy that was in force.
    pub policy: Policy,
    /// One appraisal per candidate, in their order.
    pub appraisals: Vec<Appraisal>,
}

/// A request that no candidate can serve now.
#[derive(Clone, Debug, PartialEq)]
pub struct Unplaced {
    /// One appraisal per candidate, each with its reason.
    pub appraisals: Vec<Appraisal>,
}

/// Costs this close to the lowest, in milliseconds, count as equal.
pub const NEAR_MS: f64 = 1.0;

/// Costs this close to the lowest, as a share of it, count as equal.
pub const NEAR_SHARE: f64 = 0.02;

/// Returns the highest cost that counts as equal to the lowest.
#[must_use]
pub fn near_limit(lowest_ms: f64) -> f64 {
    lowest_ms + NEAR_MS.max(lowest_ms * NEAR_SHARE)
}

impl Decision {
    /// Returns the chosen holder's appraisal.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "`place` chooses among the appraisals it returns")]
    pub fn choice(&self) -> &Appraisal {
        &self.appraisals[self.chosen]
    }

    /// Post-condition: the chosen holder can serve the request.
    #[must_use]
    pub fn chose_eligible(&self) -> bool {
        self.appraisals.get(self.chosen).is_some_and(Appraisal::eligible)
    }

    /// Post-condition of cost policies: no eligible holder is cheaper by more than counts as equal.
    #[must_use]
    pub fn chose_near_optimum(&self) -> bool {
        let lowest = self.appraisals.iter().filter(|it| it.eligible()).map(|it| it.cost.total());
        let lowest = lowest.fold(f64::INFINITY, f64::min);
        self.choice().cost.total() <= near_limit(lowest)
    }

    /// Post-condition: no term is negative or not a number.
    #[must_use]
    pub fn terms_are_sound(&self) -> bool {
        self.appraisals.iter().all(|it| {
            let terms = it.cost;
            [terms.queue, terms.fetch, terms.encode, terms.prefill, terms.decode, terms.pressure]
                .iter()
                .all(|term| term.is_finite() && *term >= 0.0)
        })
    }

    /// Post-condition: an engine always computes at least one prompt token.
    #[must_use]
    pub fn leaves_a_token(&self, prompt_tokens: u32) -> bool {
        self.appraisals.iter().all(|it| prompt_tokens == 0 || it.work.cached_tokens < prompt_tokens)
    }

    /// Post-condition: the reason `kv` is given exactly for cached tokens under a cost policy.
    #[must_use]
    pub fn reason_is_true(&self) -> bool {
        let by_cost = matches!(self.policy, Policy::Kv | Policy::KvText);
        match self.reason {
            Reason::Kv => by_cost && self.choice().work.cached_tokens > 0,
            Reason::Load => !by_cost || self.choice().work.cached_tokens == 0,
            Reason::Direct | Reason::Affinity => true,
        }
    }
}

impl Unplaced {
    /// Returns the mildest reason: the first that may pass. None without candidates.
    #[must_use]
    pub fn mildest(&self) -> Option<Why> {
        self.appraisals.iter().filter_map(|it| it.why).min()
    }

    /// Tells whether waiting can help: some holder is merely busy.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.mildest() == Some(Why::Busy)
    }
}
