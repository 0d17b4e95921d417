/// How a stored image is turned for display: the values of EXIF's `Orientation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Orientation(u8);

impl Orientation {
    /// Stored as it is shown.
    pub const UPRIGHT: Self = Self(1);

    /// Wraps EXIF's value; what is not 1 to 8 is upright, as for engines.
    #[must_use]
    pub const fn new(value: u8) -> Self {
        if matches!(value, 1..=8) { Self(value) } else { Self::UPRIGHT }
    }

    /// Returns EXIF's value, 1 to 8.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Says whether width and height change places.
    #[must_use]
    pub const fn swaps(self) -> bool {
        matches!(self.0, 5..=8)
    }
}
