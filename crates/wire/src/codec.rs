//! How every bus message becomes bytes and back.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version that this release writes.
pub const VERSION: u8 = 1;
/// The oldest version that this release reads: the one before its own, once there is one.
pub const VERSION_OLDEST: u8 = 1;
/// The largest message, in bytes; NATS's default payload limit.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sender speaks a version that this release does not read.
    #[error("message version {version} is not within {oldest} to {newest}")]
    Version {
        /// The message's.
        version: u8,
        /// The oldest read.
        oldest: u8,
        /// The newest read.
        newest: u8,
    },
    /// The message is larger than any that is sent.
    #[error("message of {bytes} bytes exceeds {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The bytes do not have the message's layout.
    #[error("malformed message")]
    Layout(#[source] bincode::error::DecodeError),
    /// Bytes remain after the message.
    #[error("message is followed by {bytes} bytes")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// The layout is right and a value is not.
    #[error("message has an invalid {field}")]
    Invalid {
        /// Which value.
        field: &'static str,
    },
    /// The value cannot be written.
    #[error("message cannot be encoded")]
    Encode(#[source] bincode::error::EncodeError),
    /// The text is not a card.
    #[error("malformed card")]
    Card(#[source] serde_json::Error),
}

/// A form that messages take, with the form it had in the version before.
pub(crate) trait Form: Serialize + DeserializeOwned {
    /// The previous version's form; the same where it has not changed.
    type Previous: DeserializeOwned + Into<Self>;
}

const LAYOUT: Configuration<LittleEndian, Fixint, Limit<MESSAGE_BYTES_MAX>> =
    bincode::config::legacy().with_limit::<MESSAGE_BYTES_MAX>();

/// Encodes a form in the present version.
pub(crate) fn encode(form: &impl Serialize) -> Result<Bytes, Error> {
    let mut bytes = vec![VERSION];
    let written = bincode::serde::encode_into_std_write(form, &mut bytes, LAYOUT).map_err(Error::Encode)?;
    if written >= MESSAGE_BYTES_MAX {
        return Err(Error::TooLarge { bytes: written + 1, bytes_max: MESSAGE_BYTES_MAX });
    }
    Ok(Bytes::from(bytes))
}

/// Decodes a form of the present or the previous version.
pub(crate) fn decode<F: Form>(message: &[u8]) -> Result<F, Error> {
    decode_within::<F>(message, VERSION_OLDEST, VERSION)
}

fn decode_within<F: Form>(message: &[u8], oldest: u8, newest: u8) -> Result<F, Error> {
    let (version, form) = message.split_first().ok_or(Error::Invalid { field: "length" })?;
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Error::TooLarge { bytes: message.len(), bytes_max: MESSAGE_BYTES_MAX });
    }
    match *version {
        version if version == newest => read(form),
        version if version == oldest => read::<F::Previous>(form).map(Into::into),
        version => Err(Error::Version { version, oldest, newest }),
    }
}

fn read<F: DeserializeOwned>(bytes: &[u8]) -> Result<F, Error> {
    let (form, taken) = bincode::serde::decode_from_slice(bytes, LAYOUT).map_err(Error::Layout)?;
    match bytes.len() - taken {
        0 => Ok(form),
        bytes => Err(Error::Trailing { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        a: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        a: u32,
        b: Vec<u64>,
    }

    impl From<Old> for New {
        fn from(old: Old) -> Self {
            Self { a: old.a, b: Vec::new() }
        }
    }

    impl Form for New {
        type Previous = Old;
    }

    fn check(message: &[u8], expected: Result<New, &str>) {
        let decoded = decode_within::<New>(message, 4, 5).map_err(|error| error.to_string());
        assert_eq!(decoded, expected.map_err(str::to_owned), "{message:?}");
    }

    #[test]
    fn reads_this_version_and_the_one_before() {
        check(&[5, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0], Ok(New { a: 7, b: vec![9] }));
        check(&[4, 7, 0, 0, 0], Ok(New { a: 7, b: vec![] }));
        check(&[3, 7, 0, 0, 0], Err("message version 3 is not within 4 to 5"));
        check(&[6, 7, 0, 0, 0], Err("message version 6 is not within 4 to 5"));
    }

    #[test]
    fn refuses_what_is_not_a_message() {
        check(&[], Err("message has an invalid length"));
        check(&[5, 7, 0], Err("malformed message"));
        check(&[4, 7, 0, 0, 0, 1], Err("message is followed by 1 bytes"));
        let mut lie = vec![5, 7, 0, 0, 0];
        lie.extend_from_slice(&u64::MAX.to_le_bytes());
        check(&lie, Err("malformed message"));
        check(&vec![5; MESSAGE_BYTES_MAX + 1], Err("message of 1048577 bytes exceeds 1048576"));
    }

    #[test]
    fn writes_nothing_that_it_would_not_read() {
        let fits = New { a: 0, b: vec![1; MESSAGE_BYTES_MAX / 8 - 2] };
        assert!(decode_within::<New>(&encode(&fits).unwrap(), 0, VERSION).is_ok());
        let large = New { a: 0, b: vec![1; MESSAGE_BYTES_MAX / 8] };
        assert!(encode(&large).is_err());
    }
}
