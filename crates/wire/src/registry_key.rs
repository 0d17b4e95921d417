//! Keys of the registry; names are percent-encoded, so that no name can break a key.
//!
//! ```text
//! /sightline/<ns>/workers/<model>/<worker>   card
//! /sightline/<ns>/frontends/<id>
//! ```

use identity::{ModelName, WorkerId};

/// Returns the key of a worker's card.
#[must_use]
pub fn worker(namespace: &str, model: &ModelName, worker: &WorkerId) -> String {
    format!("{}{}/{}", workers(namespace), encode(model.as_str()), encode(worker.as_str()))
}

/// Returns the prefix of all cards.
#[must_use]
pub fn workers(namespace: &str) -> String {
    format!("/sightline/{}/workers/", encode(namespace))
}

/// Returns the key of a frontend.
#[must_use]
pub fn frontend(namespace: &str, id: &str) -> String {
    format!("{}{}", frontends(namespace), encode(id))
}

/// Returns the prefix of all frontends.
#[must_use]
pub fn frontends(namespace: &str) -> String {
    format!("/sightline/{}/frontends/", encode(namespace))
}

/// Reads model and worker from a key made by [`worker`].
#[must_use]
pub fn worker_of(key: &str) -> Option<(ModelName, WorkerId)> {
    let (_namespace, path) = key.strip_prefix("/sightline/")?.split_once("/workers/")?;
    let (model, worker) = path.split_once('/')?;
    Some((ModelName::new(&decode(model)?), WorkerId::new(&decode(worker)?)))
}

/// Reads the frontend's name from a key made by [`frontend`].
#[must_use]
pub fn frontend_of(key: &str) -> Option<String> {
    let (_namespace, id) = key.strip_prefix("/sightline/")?.split_once("/frontends/")?;
    decode(id)
}

/// Encodes all but RFC 3986's unreserved characters.
fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                let (hex, tail) = rest.split_at_checked(2)?;
                out.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
                rest = tail;
            }
            b'/' => return None,
            byte => out.push(*byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_read_well_and_parse() {
        let key = worker("prod", &ModelName::new("Qwen/Qwen3 VL"), &WorkerId::new("w:0"));
        assert_eq!(key, "/sightline/prod/workers/Qwen%2FQwen3%20VL/w%3A0");
        assert_eq!(frontend("a/b", "f1"), "/sightline/a%2Fb/frontends/f1");
        assert_eq!(frontend_of("/sightline/a%2Fb/frontends/f%201"), Some("f 1".to_owned()));
        for foreign in [
            "",
            "/sightline/prod/workers/a",
            "/sightline/prod/workers/a/b/c",
            "/sightline/p/workers/%2/b",
            "/other/p/workers/a/b",
        ] {
            assert_eq!(worker_of(foreign), None, "{foreign:?}");
        }
    }

    proptest! {
        #[test]
        fn any_name_survives(model in ".{0,40}", name in ".{0,40}", namespace in ".{0,9}") {
            let (model, name) = (ModelName::new(&model), WorkerId::new(&name));
            let key = worker(&namespace, &model, &name);
            prop_assert!(key.starts_with(&workers(&namespace)));
            prop_assert_eq!(worker_of(&key), Some((model, name)));
        }
    }
}
