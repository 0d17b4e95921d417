//! Python's arithmetic: true division, banker's rounding, floor and ceiling to integers.
//!
//! Python divides integers exactly and rounds once. So does an `f64` division whose operands are exact, that is below
//! 2^53, which `Geometry` guarantees by bounding an image's pixels.

/// Divides two integers below 2^53 as Python's `/` does.
pub(crate) fn div(a: u64, b: u64) -> f64 {
    float(a) / float(b)
}

/// Converts an integer below 2^53 exactly.
#[expect(clippy::cast_precision_loss, reason = "callers stay below 2^53")]
pub(crate) fn float(a: u64) -> f64 {
    debug_assert!(a < 1 << 53, "{a} is exact as a float");
    a as f64
}

/// Rounds half to even, as Python's `round(x)` does.
pub(crate) fn round(x: f64) -> u64 {
    int(x.round_ties_even())
}

/// Rounds down, as `math.floor` does for what is not negative.
pub(crate) fn floor(x: f64) -> u64 {
    int(x.floor())
}

/// Rounds up, as `math.ceil` does for what is not negative.
pub(crate) fn ceil(x: f64) -> u64 {
    int(x.ceil())
}

/// Cuts off the fraction, as `int(x)` does for what is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
pub(crate) fn int(x: f64) -> u64 {
    x as u64
}

/// Returns `int(round(x, 7))` for what is not negative.
///
/// Rounding to seven places lifts `x` to the next integer exactly when it is nearer to it than half of the last place;
/// no `f64` lies on that boundary.
pub(crate) fn int_of_rounded_7(x: f64) -> u64 {
    let next = x.floor() + 1.0;
    if next - x < 5e-8 { int(next) } else { int(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_like_python() {
        for (x, expected) in [(0.5, 0), (1.5, 2), (2.5, 2), (2.500_000_1, 3), (3.5, 4), (0.499_999_9, 0)] {
            assert_eq!(round(x), expected, "round({x})");
        }
        for (x, expected) in [
            (22.999_999_96, 23),
            (22.999_999_94, 22),
            (22.999_999_999_999_996, 23),
            (23.0, 23),
            (0.999_999_96, 1),
            (0.999_999_9, 0),
            (0.0, 0),
        ] {
            assert_eq!(int_of_rounded_7(x), expected, "int(round({x}, 7))");
        }
    }

    #[test]
    fn casts_saturate() {
        assert_eq!(int(f64::INFINITY), u64::MAX);
        assert_eq!(int(f64::NAN), 0);
        assert_eq!(int(-1.0), 0);
    }
}
