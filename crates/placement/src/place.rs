//! The decision: feasibility, cost, choice.

use crate::candidate::Candidate;
use crate::cost::{Work, cost};
use crate::decision::{Appraisal, Decision, Reason, Unplaced, near_limit};
use crate::policy::Policy;
use crate::seed;
use crate::wanted::Wanted;

/// What makes one decision differ from the next: all of its chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Random word of this frontend for this request.
    pub seed: u64,
    /// Counts this frontend's decisions.
    pub round: u64,
}

/// Chooses a holder for a request.
///
/// Takes time linear in the candidates and allocates once, for the appraisals.
///
/// # Errors
/// [`Unplaced`] when no candidate can serve the request; `may_wait` says whether queueing can help.
pub fn place(wanted: &Wanted<'_>, candidates: &[Candidate<'_>], turn: Turn) -> Result<Decision, Unplaced> {
    let next = NextEncoder::of(wanted, candidates);
    let appraise = |(index, candidate)| appraise(wanted, candidate, next.is_one_too_many(index));
    let appraisals: Vec<Appraisal> = candidates.iter().enumerate().map(appraise).collect();
    let view = View { candidates, appraisals: &appraisals };
    let Some((chosen, reason)) = choose(wanted, &view, turn) else {
        return Err(Unplaced { appraisals });
    };
    let decision = Decision { chosen, reason, policy: wanted.policy, appraisals };
    debug_assert!(decision.chose_eligible() && decision.terms_are_sound(), "{decision:?}");
    Ok(decision)
}

/// How many times over encoding is charged to a holder that had better not be the next to encode the same media: by the
/// time it were done, others are.
const ENCODED_AGAIN: f64 = 64.0;

/// Who may begin to encode the request's media at no extra charge, beside those that an earlier dispatch has at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextEncoder {
    /// Nobody is at it.
    Any,
    /// One is at it; this candidate may be the second. All frontends mean the same one, without hearing of each other.
    Only(Option<usize>),
    /// Two or more are.
    None,
}

impl NextEncoder {
    fn of(wanted: &Wanted<'_>, candidates: &[Candidate<'_>]) -> Self {
        let encoding = candidates.iter().filter(|candidate| is_encoding(wanted, candidate)).count();
        let Some(subject) = wanted.media_subject() else { return Self::Any };
        match encoding {
            0 => Self::Any,
            1 => {
                let idle = candidates.iter().enumerate().filter(|(_, candidate)| {
                    !is_encoding(wanted, candidate) && candidate.why_not(wanted).is_none()
                });
                let second = idle.max_by_key(|(_, candidate)| seed::score(subject, candidate.holder));
                Self::Only(second.map(|(index, _)| index))
            }
            _ => Self::None,
        }
    }

    fn is_one_too_many(self, index: usize) -> bool {
        match self {
            Self::Any => false,
            Self::Only(second) => second != Some(index),
            Self::None => true,
        }
    }
}

/// Tells whether an earlier dispatch has the candidate encode media of the request now, or had it do so a moment ago.
const fn is_encoding(wanted: &Wanted<'_>, candidate: &Candidate<'_>) -> bool {
    candidate.near(wanted.policy).fresh
}

fn appraise(wanted: &Wanted<'_>, candidate: &Candidate<'_>, one_too_many: bool) -> Appraisal {
    let work = Work::of(wanted, candidate);
    let mut cost = cost(wanted, candidate, &work);
    if one_too_many && !is_encoding(wanted, candidate) {
        cost.encode *= ENCODED_AGAIN;
    }
    Appraisal {
        holder: candidate.holder.clone(),
        why: candidate.why_not(wanted),
        work,
        pending_blocks: work.cached_blocks.saturating_sub(candidate.matched_blocks),
        doubt: candidate.doubt,
        media_resident: candidate.near.items,
        cost,
    }
}

struct View<'a> {
    candidates: &'a [Candidate<'a>],
    appraisals: &'a [Appraisal],
}

impl View<'_> {
    /// The eligible candidates, with their index.
    fn eligible(&self) -> impl Iterator<Item = (usize, &Candidate<'_>, &Appraisal)> + Clone {
        let pairs = self.candidates.iter().zip(self.appraisals).enumerate();
        pairs.filter(|(_, (_, it))| it.eligible()).map(|(index, (candidate, it))| (index, candidate, it))
    }

    /// The eligible candidate with the lowest key; the first among equals.
    fn lowest<K: PartialOrd>(&self, key: impl Fn(&Candidate<'_>, &Appraisal) -> K) -> Option<usize> {
        let mut lowest: Option<(usize, K)> = None;
        for (index, candidate, it) in self.eligible() {
            let key = key(candidate, it);
            if lowest.as_ref().is_none_or(|(_, low)| key < *low) {
                lowest = Some((index, key));
            }
        }
        lowest.map(|(index, _)| index)
    }

    /// The `nth` eligible candidate.
    fn nth(&self, nth: usize) -> Option<usize> {
        self.eligible().nth(nth).map(|(index, _, _)| index)
    }
}

fn choose(wanted: &Wanted<'_>, view: &View<'_>, turn: Turn) -> Option<(usize, Reason)> {
    if wanted.direct.is_some() {
        return cheapest(wanted, view, turn).map(|index| (index, Reason::Direct));
    }
    if let Some(session) = wanted.session {
        let home = view.lowest(|candidate, _| u64::MAX - seed::score(session, candidate.holder));
        return home.map(|index| (index, Reason::Affinity));
    }
    let index = match wanted.policy {
        Policy::Kv | Policy::KvText => cheapest(wanted, view, turn)?,
        Policy::LeastLoaded => least_loaded(view, turn.seed)?,
        Policy::PowerOfTwo => lesser_of_two(view, turn.seed)?,
        Policy::RoundRobin => {
            let count = u64::try_from(view.eligible().count()).unwrap_or(u64::MAX);
            view.nth(usize::try_from(turn.round.checked_rem(count)?).unwrap_or(0))?
        }
        Policy::Random => view.nth(seed::pick(turn.seed, view.eligible().count()))?,
    };
    let by_cost = matches!(wanted.policy, Policy::Kv | Policy::KvText);
    let cached = view.appraisals.get(index).is_some_and(|it| it.work.cached_tokens > 0);
    Some((index, if by_cost && cached { Reason::Kv } else { Reason::Load }))
}

/// The lowest cost, and a sample of those that count as equal to it.
///
/// Where media must be encoded anew, the sample is drawn by the media and not by the frontend: frontends that meet the
/// same new image at the same moment then send it to the same holder, which encodes it once.
fn cheapest(wanted: &Wanted<'_>, view: &View<'_>, turn: Turn) -> Option<usize> {
    let best = view.lowest(|_, it| it.cost.total())?;
    let best = view.appraisals.get(best)?;
    let limit = near_limit(best.cost.total());
    let cached = best.work.cached_tokens;
    let equal =
        view.eligible().filter(|(_, _, it)| it.work.cached_tokens == cached && it.cost.total() <= limit);
    if best.work.encode_tokens > 0
        && let Some(subject) = wanted.media_subject()
    {
        let highest = equal.max_by_key(|(_, candidate, _)| seed::score(subject, candidate.holder));
        return highest.map(|(index, _, _)| index);
    }
    let count = equal.clone().count();
    equal.map(|(index, _, _)| index).nth(seed::pick(turn.seed, count))
}

/// The fewest active sequences, then the least prefill ahead; equals are sampled.
fn least_loaded(view: &View<'_>, seed: u64) -> Option<usize> {
    let (_, least, _) = view.eligible().min_by_key(|(_, candidate, _)| burden(candidate))?;
    let least = burden(least);
    let equal = view.eligible().filter(|(_, candidate, _)| burden(candidate) == least);
    let count = equal.clone().count();
    equal.map(|(index, _, _)| index).nth(seed::pick(seed, count))
}

fn lesser_of_two(view: &View<'_>, seed: u64) -> Option<usize> {
    let count = view.eligible().count();
    let first = seed::pick(seed, count);
    let second = (first + 1 + seed::pick(seed.rotate_left(32) ^ 1, count.saturating_sub(1))) % count.max(1);
    let drawn = [first, second];
    let pair = drawn.iter().filter_map(|nth| view.eligible().nth(*nth));
    pair.min_by_key(|(_, candidate, _)| burden(candidate)).map(|(index, _, _)| index)
}

const fn burden(candidate: &Candidate<'_>) -> (u32, u64) {
    (candidate.load.active, candidate.load.prefill_tokens)
}
