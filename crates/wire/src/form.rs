//! Pieces that several messages share, in the form they take on the wire.

use std::borrow::Cow;
use std::fmt;

use identity::{BUCKETS, BlockKey, Bucket, Incarnation, KeySetDigest, MediaId};
use membership::{Change, MediaRun, Run};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::Error;

/// Keys as u64 each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keys<'a>(pub(crate) Cow<'a, [BlockKey]>);

/// Most elements that are allocated on the word of a length field.
const AHEAD_MAX: usize = 4096;

impl Serialize for Keys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|key| key.get()))
    }
}

impl<'de> Deserialize<'de> for Keys<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<BlockKey>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("block keys")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<BlockKey>, A::Error> {
                let mut keys = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(AHEAD_MAX));
                while let Some(key) = seq.next_element()? {
                    keys.push(BlockKey::new(key));
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_seq(Collect).map(|keys| Self(Cow::Owned(keys)))
    }
}

impl Keys<'_> {
    /// Takes the keys, of which there must be one.
    fn some(self) -> Result<Vec<BlockKey>, Error> {
        if self.0.is_empty() {
            return Err(Error::Invalid { field: "run length" });
        }
        Ok(self.0.into_owned())
    }
}

/// A life of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IncarnationForm {
    started_ms: u64,
    nonce: u64,
}

impl From<Incarnation> for IncarnationForm {
    fn from(incarnation: Incarnation) -> Self {
        Self { started_ms: incarnation.started_ms, nonce: incarnation.nonce }
    }
}

impl From<IncarnationForm> for Incarnation {
    fn from(form: IncarnationForm) -> Self {
        Self { started_ms: form.started_ms, nonce: form.nonce }
    }
}

/// One change of a set of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ChangeForm<'a> {
    Stored { parent: Option<u64>, keys: Keys<'a>, media: Vec<MediaForm<'a>> },
    Removed { keys: Keys<'a> },
    Cleared,
}

/// A media item of a stored run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MediaForm<'a> {
    id: Cow<'a, str>,
    first_key: u64,
    tokens: u32,
}

impl<'a> From<&'a Change> for ChangeForm<'a> {
    fn from(change: &'a Change) -> Self {
        match change {
            Change::Stored { parent, keys, media } => Self::Stored {
                parent: parent.map(BlockKey::get),
                keys: Keys(Cow::Borrowed(keys)),
                media: media
                    .iter()
                    .map(|run| MediaForm {
                        id: Cow::Borrowed(run.id.as_str()),
                        first_key: run.first_key.get(),
                        tokens: run.tokens,
                    })
                    .collect(),
            },
            Change::Removed { keys } => Self::Removed { keys: Keys(Cow::Borrowed(keys)) },
            Change::Cleared => Self::Cleared,
        }
    }
}

impl ChangeForm<'_> {
    pub(crate) fn check(self) -> Result<Change, Error> {
        Ok(match self {
            Self::Stored { parent, keys, media } => Change::Stored {
                parent: parent.map(BlockKey::new),
                keys: keys.some()?,
                media: media
                    .into_iter()
                    .map(|form| MediaRun {
                        id: MediaId::new(&form.id),
                        first_key: BlockKey::new(form.first_key),
                        tokens: form.tokens,
                    })
                    .collect(),
            },
            Self::Removed { keys } => Change::Removed { keys: keys.some()? },
            Self::Cleared => Change::Cleared,
        })
    }
}

/// A run of keys below a parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunForm<'a> {
    parent: Option<u64>,
    keys: Keys<'a>,
}

impl<'a> From<&'a Run> for RunForm<'a> {
    fn from(run: &'a Run) -> Self {
        Self { parent: run.parent.map(BlockKey::get), keys: Keys(Cow::Borrowed(&run.keys)) }
    }
}

impl RunForm<'_> {
    fn check(self) -> Result<Run, Error> {
        Ok(Run { parent: self.parent.map(BlockKey::new), keys: self.keys.some()? })
    }

    pub(crate) fn check_all(forms: Vec<Self>) -> Result<Vec<Run>, Error> {
        forms.into_iter().map(Self::check).collect()
    }
}

/// A digest: counts and sums of its 256 buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DigestForm(Vec<(u32, u64)>);

impl From<&KeySetDigest> for DigestForm {
    fn from(digest: &KeySetDigest) -> Self {
        Self(digest.buckets().iter().map(|bucket| (bucket.count, bucket.sum)).collect())
    }
}

impl DigestForm {
    pub(crate) fn check(self) -> Result<KeySetDigest, Error> {
        let buckets: Vec<Bucket> = self.0.into_iter().map(|(count, sum)| Bucket { count, sum }).collect();
        let buckets: [Bucket; BUCKETS] =
            buckets.try_into().map_err(|_| Error::Invalid { field: "bucket count" })?;
        Ok(KeySetDigest::from_buckets(buckets))
    }
}
