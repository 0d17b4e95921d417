//! Subjects of the bus; names are base32 (RFC 4648, lowercase, unpadded), so that no name can break a subject.
//!
//! ```text
//! sightline.<ns>.kv.<model>.<worker>.<rank>     deltas and beats
//! sightline.<ns>.sync.<model>.<worker>.<rank>   questions to the agent
//! sightline.<ns>.peers.<model>                  who has room for a joining replica
//! sightline.<ns>.peer.<model>.<replica>         its questions to that one
//! sightline.<ns>.files.<worker>                 questions for model files
//! sightline.<ns>.load                           gauges
//! sightline.<ns>.notice                         what dispatches will bring
//! sightline.<ns>.fact                           what frontends learned of media
//! sightline.<ns>.query                          questions to indexers, by whoever wants to know
//! sightline.<ns>.lookup.<model>                 frontends' questions to indexers
//! sightline.<ns>.command.<worker>               operators' commands to the agent
//! ```

use identity::{Holder, ModelName, Rank, WorkerId};

/// Returns the subject of a holder's deltas and beats.
#[must_use]
pub fn kv(namespace: &str, model: &ModelName, holder: &Holder) -> String {
    of_holder("kv", namespace, model, holder)
}

/// Returns the pattern of all deltas and beats of a model.
#[must_use]
pub fn kv_of_model(namespace: &str, model: &ModelName) -> String {
    format!("sightline.{}.kv.{}.*.*", base32(namespace), base32(model.as_str()))
}

/// Returns the pattern of all deltas and beats.
#[must_use]
pub fn kv_of_all(namespace: &str) -> String {
    format!("sightline.{}.kv.>", base32(namespace))
}

/// Returns the subject on which a holder's agent answers.
#[must_use]
pub fn sync(namespace: &str, model: &ModelName, holder: &Holder) -> String {
    of_holder("sync", namespace, model, holder)
}

/// Returns the subject on which a model's replicas hear of one that joins.
#[must_use]
pub fn peers(namespace: &str, model: &ModelName) -> String {
    format!("sightline.{}.peers.{}", base32(namespace), base32(model.as_str()))
}

/// Returns the subject on which one replica of a model answers such a one.
#[must_use]
pub fn peer(namespace: &str, model: &ModelName, peer: u64) -> String {
    format!("sightline.{}.peer.{}.{peer:016x}", base32(namespace), base32(model.as_str()))
}

/// Returns the subject of load gauges.
#[must_use]
pub fn load(namespace: &str) -> String {
    format!("sightline.{}.load", base32(namespace))
}

/// Returns the subject of notices.
#[must_use]
pub fn notice(namespace: &str) -> String {
    format!("sightline.{}.notice", base32(namespace))
}

/// Returns the subject of media facts.
#[must_use]
pub fn fact(namespace: &str) -> String {
    format!("sightline.{}.fact", base32(namespace))
}

/// Returns the subject on which a worker's agent serves its model's files.
#[must_use]
pub fn files(namespace: &str, worker: &WorkerId) -> String {
    format!("sightline.{}.files.{}", base32(namespace), base32(worker.as_str()))
}

/// Returns the subject on which indexers answer.
#[must_use]
pub fn query(namespace: &str) -> String {
    format!("sightline.{}.query", base32(namespace))
}

/// Returns the subject on which every indexer that is ready for a model answers frontends.
#[must_use]
pub fn lookup(namespace: &str, model: &ModelName) -> String {
    format!("sightline.{}.lookup.{}", base32(namespace), base32(model.as_str()))
}

/// Returns the subject on which a worker's agent takes operators' commands.
#[must_use]
pub fn command(namespace: &str, worker: &WorkerId) -> String {
    format!("sightline.{}.command.{}", base32(namespace), base32(worker.as_str()))
}

/// Reads model and holder from a subject made by [`kv`] or [`sync`].
#[must_use]
pub fn holder_of(subject: &str) -> Option<(ModelName, Holder)> {
    let mut parts = subject.split('.');
    if parts.next()? != "sightline" {
        return None;
    }
    let (_namespace, _plane) = (parts.next()?, parts.next()?);
    let model = ModelName::new(&from_base32(parts.next()?)?);
    let worker = WorkerId::new(&from_base32(parts.next()?)?);
    let rank = Rank(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((model, Holder { worker, rank }))
}

fn of_holder(plane: &str, namespace: &str, model: &ModelName, holder: &Holder) -> String {
    let (namespace, model, worker) =
        (base32(namespace), base32(model.as_str()), base32(holder.worker.as_str()));
    format!("sightline.{namespace}.{plane}.{model}.{worker}.{}", holder.rank)
}

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Encodes a name; the empty name becomes `_`, as no part of a subject may be empty.
fn base32(name: &str) -> String {
    if name.is_empty() {
        return "_".to_owned();
    }
    let mut out = String::with_capacity(name.len() * 8 / 5 + 1);
    let (mut word, mut bits) = (0_u32, 0_u32);
    let mut put = |index: u32| {
        let letter = usize::try_from(index & 31).ok().and_then(|index| ALPHABET.get(index));
        out.extend(letter.map(|letter| char::from(*letter)));
    };
    for byte in name.bytes() {
        word = (word << 8) | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            put(word >> bits);
        }
        word &= (1 << bits) - 1;
    }
    if bits > 0 {
        put(word << (5 - bits));
    }
    out
}

fn from_base32(text: &str) -> Option<String> {
    if text == "_" {
        return Some(String::new());
    }
    let mut out = Vec::with_capacity(text.len() * 5 / 8);
    let (mut word, mut bits) = (0_u32, 0_u32);
    for letter in text.bytes() {
        let index = ALPHABET.iter().position(|candidate| *candidate == letter)?;
        word = (word << 5) | u32::try_from(index).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(word >> bits).ok()?);
            word &= (1 << bits) - 1;
        }
    }
    (word == 0).then(|| String::from_utf8(out).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_rfc_4648() {
        for (name, expected) in [
            ("", "_"),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(name), expected, "{name:?}");
        }
        let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(3) };
        assert_eq!(kv("fo", &ModelName::new("foo"), &holder), "sightline.mzxq.kv.mzxw6.o4ya.3");
        assert_eq!(kv_of_model("fo", &ModelName::new("foo")), "sightline.mzxq.kv.mzxw6.*.*");
        assert_eq!(load("fo"), "sightline.mzxq.load");
    }

    #[test]
    fn foreign_subjects_name_no_holder() {
        for subject in [
            "",
            "sightline.mzxq.kv.mzxw6.o4ya",
            "sightline.mzxq.kv.mzxw6.o4ya.3.x",
            "other.mzxq.kv.mzxw6.o4ya.3",
            "sightline.mzxq.kv.mzxw6.o4ya.70000",
            "sightline.a.kv.a!.a.1",
        ] {
            assert_eq!(holder_of(subject), None, "{subject:?}");
        }
    }

    proptest! {
        #[test]
        fn any_name_survives(model in ".{0,40}", worker in ".{0,40}", rank: u16, namespace in ".{0,9}") {
            let (model, holder) = (ModelName::new(&model), Holder { worker: WorkerId::new(&worker), rank: Rank(rank) });
            let subject = sync(&namespace, &model, &holder);
            prop_assert!(subject.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'_'));
            prop_assert_eq!(holder_of(&subject), Some((model, holder)));
        }
    }
}
