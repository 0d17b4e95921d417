//! Data URIs: decoding is bounded and agrees with another decoder; the identity is the decoded bytes'.

#![no_main]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prompt::{DataUri, media_id};

const LIMIT: u64 = 32 << 10;

fuzz_target!(|input: &[u8]| {
    // A quarter of the inputs are whole URIs, the others payloads.
    let uri = match input.split_first() {
        Some((0..64, rest)) => rest.to_vec(),
        Some((_, rest)) => [b"data:image/png;base64,", rest].concat(),
        None => return,
    };
    let Ok(uri) = DataUri::parse(&Bytes::from(uri)) else { return };
    let other = STANDARD.decode(uri.payload());
    match uri.decode(LIMIT) {
        Ok(bytes) => {
            assert!(bytes.len() as u64 <= LIMIT);
            if let Ok(other) = other {
                assert_eq!(bytes, other);
            }
            let identified = uri.identify(LIMIT, |_| 100).unwrap();
            assert_eq!(identified.id, media_id(&bytes));
            assert_eq!(identified.bytes, bytes.len() as u64);
            assert_eq!(identified.prefix, bytes[..bytes.len().min(100)]);
            let prefix = uri.prefix(100).unwrap();
            assert!(bytes.starts_with(&prefix[..prefix.len().min(bytes.len())]));
            assert!(prefix.len() >= bytes.len().min(100));
        }
        Err(_) => {
            assert!(uri.identify(LIMIT, |_| 100).is_err());
            if let Ok(other) = other {
                assert!(other.is_empty() || other.len() as u64 > LIMIT, "refused what another decoder reads");
            }
        }
    }
});
