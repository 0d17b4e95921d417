//! Bounded reads from a prefix of a file.

use crate::malformed::Malformed;

/// Why a parser can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The prefix must reach to this offset.
    NeedMore(u64),
    /// The file is broken.
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The bytes of a file, or its first ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    data: &'a [u8],
    /// Whether nothing follows.
    pub(crate) whole: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) const fn new(data: &'a [u8], whole: bool) -> Self {
        Self { data, whole }
    }

    pub(crate) const fn all(self) -> &'a [u8] {
        self.data
    }

    /// Returns how many bytes there are.
    pub(crate) const fn len(self) -> u64 {
        self.data.len() as u64
    }

    /// Reads `len` bytes at `offset`.
    pub(crate) fn read(self, offset: u64, len: u64) -> Result<&'a [u8], Stop> {
        let end = offset.saturating_add(len);
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        range.and_then(|(from, to)| self.data.get(from..to)).ok_or(Stop::NeedMore(end))
    }

    /// Reads `N` bytes at `offset`.
    pub(crate) fn array<const N: usize>(self, offset: u64) -> Result<[u8; N], Stop> {
        let read = self.read(offset, N as u64)?;
        read.try_into().map_err(|_| Stop::NeedMore(offset))
    }

    pub(crate) fn u8(self, offset: u64) -> Result<u8, Stop> {
        self.array::<1>(offset).map(|[byte]| byte)
    }

    pub(crate) fn u16_be(self, offset: u64) -> Result<u16, Stop> {
        self.array(offset).map(u16::from_be_bytes)
    }

    pub(crate) fn u16_le(self, offset: u64) -> Result<u16, Stop> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(crate) fn u32_be(self, offset: u64) -> Result<u32, Stop> {
        self.array(offset).map(u32::from_be_bytes)
    }

    pub(crate) fn u32_le(self, offset: u64) -> Result<u32, Stop> {
        self.array(offset).map(u32::from_le_bytes)
    }
}
