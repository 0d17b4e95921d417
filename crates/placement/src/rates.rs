//! How fast a holder is, as milliseconds per unit.

/// Milliseconds that a holder takes per unit of work; every field is positive and finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Per prompt token computed.
    pub prefill_ms: f64,
    /// Per media placeholder token encoded.
    pub encode_ms: f64,
    /// Per media byte fetched.
    pub fetch_ms: f64,
    /// Added to a request's time by each sequence already active.
    pub decode_ms: f64,
    /// Taken by every request, however small.
    pub base_ms: f64,
}

/// What a request takes however small it is, before anything is learned.
const BASE_MS: f64 = 5.0;

impl Rates {
    /// Converts speeds, each in units per second, and the delay per active sequence in microseconds.
    ///
    /// A speed of zero is taken as one unit per second.
    #[must_use]
    pub fn from_speeds(prefill_tokens: u32, encode_tokens: u32, fetch_bytes: u64, decode_us: u32) -> Self {
        let per = |speed: f64| 1000.0 / speed.max(1.0);
        Self {
            prefill_ms: per(f64::from(prefill_tokens)),
            encode_ms: per(f64::from(encode_tokens)),
            fetch_ms: per(fetch_bytes as f64),
            decode_ms: f64::from(decode_us) / 1000.0,
            base_ms: BASE_MS,
        }
    }

    /// Predicts a first-token time from the work before it, that of requests ahead included; in milliseconds.
    #[must_use]
    pub fn first_token_ms(&self, prefill_tokens: f64, encode_tokens: f64) -> f64 {
        prefill_tokens * self.prefill_ms + encode_tokens * self.encode_ms + self.base_ms
    }

    /// Tells whether no rate can spoil a cost.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        [self.prefill_ms, self.encode_ms, self.fetch_ms, self.decode_ms, self.base_ms]
            .iter()
            .all(|rate| rate.is_finite() && *rate >= 0.0)
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::from_speeds(10_000, 5_000, 50_000_000, 500)
    }
}
