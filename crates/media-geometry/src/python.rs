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
