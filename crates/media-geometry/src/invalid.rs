use std::ops::RangeInclusive;

/// A value in a family's configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, expected {} to {}", range.start(), range.end())]
pub struct Invalid {
    /// The configuration's field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The values that are accepted.
    pub range: RangeInclusive<u64>,
}

/// The largest side of a patch, tile or image in a configuration, in pixels.
pub(crate) const SIDE_MAX: u64 = 1 << 16;
/// The largest bound on an image's pixels in a configuration.
pub(crate) const AREA_MAX: u64 = 1 << 40;
/// The largest count of tokens, tiles or patches in a configuration.
pub(crate) const COUNT_MAX: u64 = 1 << 20;

/// Checks that a value lies in a range.
pub(crate) fn within(
    field: &'static str,
    value: impl Into<u64>,
    range: RangeInclusive<u64>,
) -> Result<(), Invalid> {
    let value = value.into();
    if range.contains(&value) { Ok(()) } else { Err(Invalid { field, value, range }) }
}
