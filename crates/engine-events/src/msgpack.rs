//! A bounded, non-recursive `MessagePack` reader over a slice: what does not fit is an error, never a panic.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a schema names the tokens it takes; all others are one error"
)]

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside a value.
    #[error("input ends inside a value")]
    Truncated,
    /// A byte that begins no value.
    #[error("byte {0:#04x} begins no value")]
    Marker(u8),
    /// A value of another kind than the schema has there.
    #[error("expected {expected}")]
    Kind {
        /// What the schema has there.
        expected: &'static str,
    },
}

/// The head of one value; arrays and maps are followed by their elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(&'a [u8]),
    Binary(&'a [u8]),
    Array(u32),
    Map(u32),
    Extension,
}

/// A position in a message.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bounds how many elements can possibly follow, whatever a length field says.
    pub(crate) fn capacity(&self, claimed: u32) -> usize {
        usize::try_from(claimed).unwrap_or(usize::MAX).min(self.rest.len())
    }

    pub(crate) fn token(&mut self) -> Result<Token<'a>, Error> {
        let [marker] = self.array::<1>()?;
        Ok(match marker {
            0x00..=0x7f => Token::Unsigned(u64::from(marker)),
            0x80..=0x8f => Token::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Token::Array(u32::from(marker & 0x0f)),
            0xa0..=0xbf => Token::Text(self.take(usize::from(marker & 0x1f))?),
            0xc0 => Token::Nil,
            0xc2 | 0xc3 => Token::Bool(marker == 0xc3),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Token::Binary(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.extension(length)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xcc => Token::Unsigned(u64::from(u8::from_be_bytes(self.array()?))),
            0xcd => Token::Unsigned(u64::from(u16::from_be_bytes(self.array()?))),
            0xce => Token::Unsigned(u64::from(u32::from_be_bytes(self.array()?))),
            0xcf => Token::Unsigned(u64::from_be_bytes(self.array()?)),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => signed(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                Token::Text(self.take(length)?)
            }
            0xdc => Token::Array(u32::from(u16::from_be_bytes(self.array()?))),
            0xdd => Token::Array(u32::from_be_bytes(self.array()?)),
            0xde => Token::Map(u32::from(u16::from_be_bytes(self.array()?))),
            0xdf => Token::Map(u32::from_be_bytes(self.array()?)),
            0xe0..=0xff => Token::Negative(i64::from(marker.cast_signed())),
            0xc1 => return Err(Error::Marker(marker)),
        })
    }

    /// Reads over one value and everything in it, and returns the bytes it took.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], Error> {
        let before = self.rest;
        let mut open: u64 = 1;
        while open > 0 {
            open -= 1;
            open += match self.token()? {
                Token::Array(length) => u64::from(length),
                Token::Map(length) => 2 * u64::from(length),
                Token::Nil
                | Token::Bool(_)
                | Token::Unsigned(_)
                | Token::Negative(_)
                | Token::Float(_)
                | Token::Text(_)
                | Token::Binary(_)
                | Token::Extension => 0,
            };
        }
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }

    /// Reads the head of an array, or nothing where there is a nil.
    pub(crate) fn array_or_nil(&mut self) -> Result<Option<u32>, Error> {
        match self.token()? {
            Token::Array(length) => Ok(Some(length)),
            Token::Nil => Ok(None),
            _ => Err(Error::Kind { expected: "array or nil" }),
        }
    }

    /// Reads UTF-8 text, or nothing where there is a nil.
    pub(crate) fn text_or_nil(&mut self) -> Result<Option<&'a str>, Error> {
        match self.token()? {
            Token::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(Error::Kind { expected: "utf-8 text" }),
            },
            Token::Nil => Ok(None),
            _ => Err(Error::Kind { expected: "text or nil" }),
        }
    }

    /// Reads a number of at most 32 bits, or nothing where there is a nil.
    pub(crate) fn word_or_nil(&mut self) -> Result<Option<u32>, Error> {
        match self.token()? {
            Token::Unsigned(number) => match u32::try_from(number) {
                Ok(word) => Ok(Some(word)),
                Err(_) => Err(Error::Kind { expected: "32-bit number" }),
            },
            Token::Nil => Ok(None),
            _ => Err(Error::Kind { expected: "number or nil" }),
        }
    }

    /// Reads a number of at most 32 bits.
    pub(crate) fn word(&mut self) -> Result<u32, Error> {
        self.word_or_nil()?.ok_or(Error::Kind { expected: "number" })
    }

    fn length(&mut self, width: u8) -> Result<usize, Error> {
        let length = match width {
            0 => u32::from(u8::from_be_bytes(self.array()?)),
            1 => u32::from(u16::from_be_bytes(self.array()?)),
            _ => u32::from_be_bytes(self.array()?),
        };
        usize::try_from(length).map_err(|_| Error::Truncated)
    }

    fn extension(&mut self, length: usize) -> Result<Token<'a>, Error> {
        self.take(1)?;
        self.take(length)?;
        Ok(Token::Extension)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
}

fn signed(number: i64) -> Token<'static> {
    u64::try_from(number).map_or(Token::Negative(number), Token::Unsigned)
}
