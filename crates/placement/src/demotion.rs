//! Credit withdrawn where predictions keep being wrong.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use identity::Holder;

use crate::verdict::Verdict;

/// What a prediction rested on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Text alone.
    Text,
    /// Text and media.
    Media,
    /// A cache salt or an adapter.
    Scoped,
}

impl Feature {
    /// Returns the feature's name in answers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Media => "media",
            Self::Scoped => "scoped",
        }
    }
}

/// A verdict, and whom and what it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// The holder of which something was predicted.
    pub holder: Holder,
    /// What the prediction rested on.
    pub feature: Feature,
    /// Names the tenant whose request it was.
    pub tenant: u64,
    /// What came of it.
    pub verdict: Verdict,
}

/// When credit is withdrawn, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemotionLimits {
    /// Verdicts that are looked at.
    pub window: usize,
    /// Wrong ones among them that withdraw credit, if they are also at least half.
    pub wrong_min: usize,
    /// Right ones in a row that clear the record.
    pub right_min: usize,
    /// How long credit is withdrawn at first; it returns earlier where prompts were what was wrong and that many hold again
    /// in a row. Doubles each time the record has not been cleared in between.
    pub period: Duration,
    /// The longest that it is.
    pub period_max: Duration,
    /// Holders and features that have a record.
    pub records_max: usize,
}

impl Default for DemotionLimits {
    fn default() -> Self {
        Self {
            window: 16,
            wrong_min: 6,
            right_min: 8,
            period: Duration::from_secs(60),
            period_max: Duration::from_secs(3600),
            records_max: 8192,
        }
    }
}

/// Records by holder and feature.
#[derive(Debug, Default)]
pub struct Demotions {
    limits: DemotionLimits,
    records: HashMap<(Holder, Feature), Record>,
}

#[derive(Debug)]
struct Record {
    recent: VecDeque<Judged>,
    until: Duration,
    period: Duration,
    /// Where credit is withdrawn for wrong prompts: how many held in a row since.
    held: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    tenant: u64,
    wrong: bool,
    of_prompt: bool,
}

impl Demotions {
    /// Starts with a clean record for everybody.
    #[must_use]
    pub fn new(limits: DemotionLimits) -> Self {
        Self { limits, records: HashMap::new() }
    }

    /// Takes note of a verdict. Answers whether it withdrew credit.
    ///
    /// Verdicts that speak of a moment, or of nothing, change nothing. One tenant among several cannot withdraw a
    /// holder's credit alone.
    pub fn note(&mut self, ruling: &Ruling, now: Duration) -> bool {
        let name = (ruling.holder.clone(), ruling.feature);
        if self
            .records
            .get_mut(&name)
            .is_some_and(|record| record.recovers(ruling.verdict, &self.limits, now))
        {
            self.records.remove(&name);
            return false;
        }
        let wrong = match ruling.verdict {
            Verdict::Match => false,
            Verdict::Mismatch(class) if class.is_lasting() => true,
            Verdict::Mismatch(_) | Verdict::NotComparable(_) => return false,
        };
        if !self.records.contains_key(&name) && (!wrong || self.records.len() >= self.limits.records_max) {
            return false;
        }
        let limits = self.limits;
        let fresh =
            || Record { recent: VecDeque::new(), until: Duration::ZERO, period: limits.period, held: None };
        let record = self.records.entry(name.clone()).or_insert_with(fresh);
        let of_prompt = matches!(ruling.verdict, Verdict::Mismatch(class) if class.is_of_prompt());
        record.push(Judged { tenant: ruling.tenant, wrong, of_prompt }, &limits);
        if record.is_clear(&limits) && record.until <= now {
            self.records.remove(&name);
            return false;
        }
        record.withdraw(&limits, now)
    }

    /// Tells whether a holder's credit for a feature is withdrawn.
    #[must_use]
    pub fn is_demoted(&self, holder: &Holder, feature: Feature, now: Duration) -> bool {
        !self.records.is_empty()
            && self.records.get(&(holder.clone(), feature)).is_some_and(|record| record.until > now)
    }

    /// Lists what is withdrawn.
    pub fn demoted(&self, now: Duration) -> impl Iterator<Item = (&Holder, Feature)> {
        let demoted = self.records.iter().filter(move |(_, record)| record.until > now);
        demoted.map(|((holder, feature), _)| (holder, *feature))
    }

    /// Forgets a holder's records: its engine is another now.
    pub fn forget_holder(&mut self, holder: &Holder) {
        self.records.retain(|(recorded, _), _| recorded != holder);
    }

    /// Keeps only the holders that still exist.
    pub fn retain(&mut self, exists: impl Fn(&Holder) -> bool) {
        self.records.retain(|(holder, _), _| exists(holder));
    }
}

impl Record {
    fn push(&mut self, judged: Judged, limits: &DemotionLimits) {
        self.recent.push_back(judged);
        while self.recent.len() > limits.window {
            self.recent.pop_front();
        }
    }

    /// Tells whether prompts hold again: they are predicted whole while credit is withdrawn, whatever counts of them.
    fn recovers(&mut self, verdict: Verdict, limits: &DemotionLimits, now: Duration) -> bool {
        let Some(held) = self.held.as_mut().filter(|_| self.until > now) else { return false };
        match verdict {
            Verdict::NotComparable(_) => {}
            Verdict::Mismatch(class) if class.is_of_prompt() => *held = 0,
            Verdict::Match | Verdict::Mismatch(_) => *held += 1,
        }
        *held >= limits.right_min
    }

    fn is_clear(&self, limits: &DemotionLimits) -> bool {
        self.recent.len() >= limits.right_min
            && self.recent.iter().rev().take(limits.right_min).all(|judged| !judged.wrong)
    }

    fn withdraw(&mut self, limits: &DemotionLimits, now: Duration) -> bool {
        let wrong = self.recent.iter().filter(|judged| judged.wrong).count();
        let of_one_tenant = |of: fn(&Judged) -> bool| {
            let mut tenants = self.recent.iter().filter(|judged| of(judged)).map(|judged| judged.tenant);
            let first = tenants.next();
            tenants.all(|tenant| Some(tenant) == first)
        };
        let quorum = !of_one_tenant(|judged| judged.wrong) || of_one_tenant(|_| true);
        if self.until > now || wrong < limits.wrong_min || wrong * 2 < self.recent.len() || !quorum {
            return false;
        }
        let mut wrong = self.recent.iter().filter(|judged| judged.wrong);
        self.held = wrong.all(|judged| judged.of_prompt).then_some(0);
        self.until = now + self.period;
        self.period = (self.period * 2).min(limits.period_max);
        self.recent.clear();
        true
    }
}

#[cfg(test)]
mod tests {
    use identity::{Rank, WorkerId};

    use super::*;
    use crate::verdict::{Class, Obstacle};

    const WRONG: Verdict = Verdict::Mismatch(Class::MediaCount);

    fn holder() -> Holder {
        Holder { worker: WorkerId::new("w"), rank: Rank(0) }
    }

    fn ruling(tenant: u64, verdict: Verdict) -> Ruling {
        Ruling { holder: holder(), feature: Feature::Media, tenant, verdict }
    }

    fn after(verdicts: &[(u64, Verdict)]) -> Demotions {
        let mut demotions = Demotions::default();
        for (tenant, verdict) in verdicts {
            demotions.note(&ruling(*tenant, *verdict), Duration::ZERO);
        }
        demotions
    }

    fn check(verdicts: &[(u64, Verdict)], expected: bool) {
        let demoted = after(verdicts).is_demoted(&holder(), Feature::Media, Duration::from_secs(1));
        assert_eq!(demoted, expected, "{verdicts:?}");
    }

    #[test]
    fn a_quorum_withdraws_credit() {
        check(&[(1, WRONG); 5], false);
        check(&[(1, WRONG); 6], true);
        check(&[(1, Verdict::Mismatch(Class::Evicted)); 9], false);
        check(&[(1, Verdict::NotComparable(Obstacle::Failed)); 9], false);
        let mut of_two = vec![(1, WRONG); 6];
        of_two.insert(1, (2, Verdict::Match));
        check(&of_two, false);
        of_two.push((2, WRONG));
        check(&of_two, true);
        let mut minority = vec![(1, WRONG); 4];
        minority.extend([(1, Verdict::Match); 7]);
        minority.extend([(1, WRONG); 2]);
        check(&minority, false);
    }

    #[test]
    fn credit_returns_once_prompts_hold() {
        let stale = Verdict::Mismatch(Class::StaleHolder);
        let mut demotions = after(&[(1, WRONG); 6]);
        let at = Duration::from_secs(1);
        let demoted = |demotions: &Demotions| demotions.is_demoted(&holder(), Feature::Media, at);
        let note = |demotions: &mut Demotions, verdict| demotions.note(&ruling(1, verdict), at);
        for verdict in
            [Verdict::Match, stale, Verdict::Match, WRONG, Verdict::NotComparable(Obstacle::Failed)]
        {
            note(&mut demotions, verdict);
        }
        for _ in 0..7 {
            note(&mut demotions, stale);
        }
        assert!(demoted(&demotions), "seven in a row");
        note(&mut demotions, Verdict::Match);
        assert!(!demoted(&demotions), "eight");
        assert!(demotions.records.is_empty());
        // What was wrong about the cache shows only with credit: it returns by time.
        let mut demotions = after(&[(1, Verdict::Mismatch(Class::CacheOff)); 6]);
        for _ in 0..20 {
            note(&mut demotions, Verdict::Match);
        }
        assert!(demoted(&demotions));
    }

    #[test]
    fn credit_returns_by_time_and_the_record_by_truth() {
        let mut demotions = after(&[(1, WRONG); 6]);
        assert!(!demotions.is_demoted(&holder(), Feature::Text, Duration::ZERO));
        assert!(demotions.is_demoted(&holder(), Feature::Media, Duration::from_secs(59)));
        assert!(!demotions.is_demoted(&holder(), Feature::Media, Duration::from_secs(60)));
        for _ in 0..6 {
            demotions.note(&ruling(1, WRONG), Duration::from_secs(60));
        }
        assert!(demotions.is_demoted(&holder(), Feature::Media, Duration::from_secs(179)), "twice as long");
        for _ in 0..8 {
            demotions.note(&ruling(1, Verdict::Match), Duration::from_secs(200));
        }
        assert!(demotions.records.is_empty());
    }
}
