//! How long the work of a step takes.

use std::time::Duration;

use crate::scheduler::Work;

/// Rates of the simulated hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeModel {
    /// Prompt tokens computed in a second.
    pub(crate) prefill_tokens_per_second: f64,
    /// Media tokens encoded in a second.
    pub(crate) encode_tokens_per_second: f64,
    /// Duration of a step that generates, in milliseconds, whatever its batch.
    pub(crate) decode_step_ms: f64,
    /// How many simulated seconds pass in a real one; 0 stands for no simulated time at all.
    pub(crate) speed: f64,
}

impl TimeModel {
    /// Returns the real time that a step's work takes.
    #[must_use]
    pub(crate) fn duration(&self, work: &Work) -> Duration {
        if self.speed <= 0.0 {
            return Duration::ZERO;
        }
        let decode = if work.decodes > 0 { self.decode_step_ms / 1000.0 } else { 0.0 };
        let seconds = f64::from(work.prefill_tokens) / self.prefill_tokens_per_second
            + f64::from(work.encode_tokens) / self.encode_tokens_per_second
            + decode;
        Duration::try_from_secs_f64(seconds / self.speed).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_add_up_and_scale_with_speed() {
        let model = |speed| TimeModel {
            prefill_tokens_per_second: 1000.0,
            encode_tokens_per_second: 500.0,
            decode_step_ms: 20.0,
            speed,
        };
        let work = Work { prefill_tokens: 100, encode_tokens: 50, decodes: 3 };
        assert_eq!(model(1.0).duration(&work), Duration::from_millis(220));
        assert_eq!(model(10.0).duration(&work), Duration::from_millis(22));
        assert_eq!(model(0.0).duration(&work), Duration::ZERO);
        assert_eq!(model(1.0).duration(&Work::default()), Duration::ZERO);
    }
}
