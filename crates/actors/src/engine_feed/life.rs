//! Numbers of engine lives.

use identity::Incarnation;

/// What rounding may add to a start time that an engine reports.
const ROUNDING_MS: u64 = 20;

/// Chooses the number of a life that begins now, later than any before it.
///
/// The random part begins with the present time, so that a later one, chosen by an agent that remembers nothing, is
/// later in order too.
pub(super) fn next_life(
    before: Option<Incarnation>,
    engine_started_ms: Option<u64>,
    wall_ms: u64,
    seed: u64,
) -> Incarnation {
    let nonce = (wall_ms << 20) | (seed & 0xf_ffff);
    let life = Incarnation { started_ms: engine_started_ms.unwrap_or(wall_ms), nonce };
    match before {
        // Keeps the start: an agent that forgets this life again has only the time in the nonce to surpass it by.
        Some(before) if life <= before => {
            Incarnation { started_ms: before.started_ms, nonce: nonce.max(before.nonce.saturating_add(1)) }
        }
        _ => life,
    }
}

/// Tells whether an engine that reports `started_ms` is a later process than one that reported `known_ms`.
///
/// Several server processes in front of one engine may report their own, so an earlier one says nothing.
pub(super) const fn is_later(known_ms: u64, started_ms: u64) -> bool {
    started_ms > known_ms.saturating_add(ROUNDING_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_only_grow() {
        let first = next_life(None, Some(1000), 5000, 7);
        assert_eq!(first, Incarnation { started_ms: 1000, nonce: (5000 << 20) | 7 });
        for (started, wall) in
            [(Some(1000), 6000), (Some(2000), 4000), (Some(900), 6000), (None, 900), (Some(1000), 5000)]
        {
            assert!(next_life(Some(first), started, wall, 0) > first, "{started:?} {wall}");
        }
        let forgetful = next_life(None, Some(1000), 5001, 0);
        assert!(forgetful > first, "an agent without memory still goes up");
        let same_moment = next_life(Some(first), Some(1000), 5000, 7);
        assert!(forgetful > same_moment, "also above a second life of the same millisecond");
    }

    #[test]
    fn rounding_is_no_restart() {
        assert!(!is_later(1000, 1010) && !is_later(1000, 900) && is_later(1000, 1021));
    }
}
