//! Learns a holder's rates from first-token times.

use crate::rates::Rates;

/// How an estimator learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learning {
    /// Share of an error that one sample corrects, above 0 and at most 1.
    pub step: f64,
    /// How far a factor may leave 1, as a factor either way; at least 1.
    pub factor_max: f64,
}

impl Learning {
    /// For what many holders have in common: quick and wide.
    pub const SHARED: Self = Self { step: 0.2, factor_max: 32.0 };
    /// For what sets one holder apart from its like: slow and narrow, so that a stall does not drive its prefixes away.
    pub const OWN: Self = Self { step: 0.03, factor_max: 3.0 };
}

/// An error counts for at most this many times what was predicted, so that one stall teaches little.
const SURPRISE_MAX: f64 = 3.0;

/// Numbers past this are no measurement.
const NUMBER_MAX: f64 = 1e9;

/// One observed first-token time and the work before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Prompt tokens computed before the token, those of requests ahead included.
    pub prefill_tokens: f64,
    /// Media tokens encoded before it, likewise.
    pub encode_tokens: f64,
    /// Time from dispatch to the token, in milliseconds.
    pub first_token_ms: f64,
}

/// Factors on prior rates, corrected by each sample in proportion to what each term contributed (normalised least mean
/// squares; Widrow, Hoff 1960; Nagumo, Noda 1967) and bounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimator {
    learning: Learning,
    prefill: f64,
    encode: f64,
    base: f64,
}

impl Estimator {
    /// Starts at the priors.
    #[must_use]
    pub const fn new(learning: Learning) -> Self {
        Self { learning, prefill: 1.0, encode: 1.0, base: 1.0 }
    }

    /// Applies what was learned to prior rates; active sequences slow a request as prefill does.
    #[must_use]
    pub fn rates(&self, priors: &Rates) -> Rates {
        Rates {
            prefill_ms: priors.prefill_ms * self.prefill,
            encode_ms: priors.encode_ms * self.encode,
            fetch_ms: priors.fetch_ms,
            decode_ms: priors.decode_ms * self.prefill,
            base_ms: priors.base_ms * self.base,
        }
    }

    /// Learns from a sample; those with a number that is none, negative or past 10⁹ teach nothing.
    pub fn learn(&mut self, priors: &Rates, sample: &Sample) {
        let numbers = [sample.prefill_tokens, sample.encode_tokens, sample.first_token_ms];
        if !numbers.iter().all(|number| (0.0..=NUMBER_MAX).contains(number)) {
            return;
        }
        let prefill = sample.prefill_tokens * priors.prefill_ms;
        let encode = sample.encode_tokens * priors.encode_ms;
        let base = priors.base_ms;
        let predicted = self.rates(priors).first_token_ms(sample.prefill_tokens, sample.encode_tokens);
        let surprise = predicted * SURPRISE_MAX;
        let error = (sample.first_token_ms - predicted).clamp(-surprise, surprise);
        let power = prefill * prefill + encode * encode + base * base;
        if power <= 0.0 {
            return;
        }
        let Learning { step, factor_max } = self.learning;
        let correct = |factor: f64, term: f64| {
            (factor + step * error * term / power).clamp(1.0 / factor_max, factor_max)
        };
        self.prefill = correct(self.prefill, prefill);
        self.encode = correct(self.encode, encode);
        self.base = correct(self.base, base);
    }

    /// Tells whether every factor is within its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let bounds = 1.0 / self.learning.factor_max..=self.learning.factor_max;
        [self.prefill, self.encode, self.base].iter().all(|factor| bounds.contains(factor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed::mix;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn stays_bounded(samples in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..100)) {
            let mut estimator = Estimator::new(Learning::SHARED);
            for (prefill_tokens, encode_tokens, first_token_ms) in samples {
                estimator.learn(&Rates::default(), &Sample { prefill_tokens, encode_tokens, first_token_ms });
                prop_assert!(estimator.is_bounded(), "{:?}", estimator);
                prop_assert!(estimator.rates(&Rates::default()).is_sane());
            }
        }

        #[test]
        fn finds_the_true_rates(prefill in 0.2_f64..5.0, encode in 0.2_f64..5.0, seed in any::<u64>()) {
            let priors = Rates::default();
            let mut estimator = Estimator::new(Learning::SHARED);
            for round in 0..1000_u64 {
                let draw = |salt: u64, max: u64| (mix(seed ^ mix(round ^ salt)) % max) as f64;
                let (prefill_tokens, encode_tokens) = (64.0 + draw(1, 4000), draw(2, 2) * draw(3, 3000));
                let true_ms = prefill_tokens * priors.prefill_ms * prefill + encode_tokens * priors.encode_ms * encode + 8.0;
                let sample = Sample { prefill_tokens, encode_tokens, first_token_ms: true_ms };
                estimator.learn(&priors, &sample);
            }
            let rates = estimator.rates(&priors);
            let found = (rates.prefill_ms / priors.prefill_ms / prefill, rates.encode_ms / priors.encode_ms / encode);
            prop_assert!((0.6..1.7).contains(&found.0) && (0.6..1.7).contains(&found.1), "{found:?} of the truth");
        }
    }
}
