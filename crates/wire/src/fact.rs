//! Media facts: what one frontend has learned of items, so that others need not ask for it again.
//!
//! No URL and no client's name travels, only digests of them, keyed by the cluster's secret: a URL may carry a signature.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{MediaId, ModelName};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};

/// Digest of a normalised URL, or of a tenant's own name for an item.
pub type Digest = [u8; 32];

/// Some news of one frontend, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The frontend's name, unique in the namespace.
    pub frontend: String,
    /// The sender's wall clock when it was sent, in milliseconds since the epoch.
    pub sent_ms: u64,
    /// What is behind URLs.
    pub facts: Vec<Fact>,
    /// What clients' own names stand for.
    pub names: Vec<Name>,
}

/// What is behind a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// The URL.
    pub url: Digest,
    /// By what the origin can be asked whether it still holds.
    pub validator: Option<Validator>,
    /// For how much longer it may be used without asking, in milliseconds.
    pub fresh_ms: u64,
    /// What is there.
    pub item: Item,
    /// The engines' own names for it, by model.
    pub engine_ids: Vec<(ModelName, MediaId)>,
}

/// A version as its origin calls it; only such as prove that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validator {
    /// A strong `ETag`.
    Etag(String),
    /// `Last-Modified`.
    LastModified(String),
}

/// What is known of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The identity of its bytes; none where only its beginning was read.
    pub id: Option<MediaId>,
    /// Width and height of an image, as shown; none where it is of no known format.
    pub size: Option<(u32, u32)>,
    /// Its length in bytes; zero where that is not known.
    pub bytes: u64,
}

/// What a tenant's own name for an item stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Tenant and name.
    pub name: Digest,
    /// The item.
    pub item: Item,
}

#[derive(Serialize, Deserialize)]
struct FactsForm<'a> {
    frontend: Cow<'a, str>,
    sent_ms: u64,
    facts: Vec<FactForm<'a>>,
    names: Vec<(Digest, ItemForm<'a>)>,
}

#[derive(Serialize, Deserialize)]
struct FactForm<'a> {
    url: Digest,
    validator: Option<ValidatorForm<'a>>,
    fresh_ms: u64,
    item: ItemForm<'a>,
    engine_ids: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

#[derive(Serialize, Deserialize)]
enum ValidatorForm<'a> {
    Etag(Cow<'a, str>),
    LastModified(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
struct ItemForm<'a> {
    id: Option<Cow<'a, str>>,
    size: Option<(u32, u32)>,
    bytes: u64,
}

impl Form for FactsForm<'_> {
    type Previous = Self;
}

/// Longest text in a fact, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Models for which one fact tells an engine's name.
const ENGINE_IDS_MAX: usize = 16;

impl Facts {
    /// Encodes the facts.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` past 1 MiB: the sender sends fewer at a time.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&FactsForm {
            frontend: Cow::Borrowed(&self.frontend),
            sent_ms: self.sent_ms,
            facts: self.facts.iter().map(FactForm::from).collect(),
            names: self.names.iter().map(|name| (name.name, ItemForm::from(&name.item))).collect(),
        })
    }

    /// Decodes facts.
    ///
    /// # Errors
    /// The message is dropped: what it told of is asked of its origin when it is needed.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        let form: FactsForm<'_> = codec::decode(message)?;
        let names = form.names.into_iter().map(|(name, item)| Ok(Name { name, item: item.check()? }));
        Ok(Self {
            frontend: form.frontend.into_owned(),
            sent_ms: form.sent_ms,
            facts: form.facts.into_iter().map(FactForm::check).collect::<Result<_, _>>()?,
            names: names.collect::<Result<_, Error>>()?,
        })
    }
}

impl<'a> From<&'a Fact> for FactForm<'a> {
    fn from(fact: &'a Fact) -> Self {
        let engine_id = |(model, id): &'a (ModelName, MediaId)| {
            (Cow::Borrowed(model.as_str()), Cow::Borrowed(id.as_str()))
        };
        Self {
            url: fact.url,
            validator: fact.validator.as_ref().map(|validator| match validator {
                Validator::Etag(etag) => ValidatorForm::Etag(Cow::Borrowed(etag)),
                Validator::LastModified(date) => ValidatorForm::LastModified(Cow::Borrowed(date)),
            }),
            fresh_ms: fact.fresh_ms,
            item: ItemForm::from(&fact.item),
            engine_ids: fact.engine_ids.iter().map(engine_id).collect(),
        }
    }
}

impl FactForm<'_> {
    fn check(self) -> Result<Fact, Error> {
        if self.engine_ids.len() > ENGINE_IDS_MAX {
            return Err(Error::Invalid { field: "engine id count" });
        }
        let validator = match self.validator {
            // Weak ones prove nothing.
            Some(ValidatorForm::Etag(etag)) if !etag.starts_with('"') => {
                return Err(Error::Invalid { field: "etag" });
            }
            Some(ValidatorForm::Etag(etag)) => Some(Validator::Etag(text(etag, "etag")?)),
            Some(ValidatorForm::LastModified(date)) => {
                Some(Validator::LastModified(text(date, "last modification")?))
            }
            None => None,
        };
        let engine_id =
            |(model, id)| Ok((ModelName::new(&text(model, "model")?), MediaId::new(&text(id, "engine id")?)));
        Ok(Fact {
            url: self.url,
            validator,
            fresh_ms: self.fresh_ms,
            item: self.item.check()?,
            engine_ids: self.engine_ids.into_iter().map(engine_id).collect::<Result<_, Error>>()?,
        })
    }
}

impl<'a> From<&'a Item> for ItemForm<'a> {
    fn from(item: &'a Item) -> Self {
        Self { id: item.id.as_ref().map(|id| Cow::Borrowed(id.as_str())), size: item.size, bytes: item.bytes }
    }
}

impl ItemForm<'_> {
    fn check(self) -> Result<Item, Error> {
        if self.size.is_some_and(|(width, height)| width == 0 || height == 0) {
            return Err(Error::Invalid { field: "image size" });
        }
        let id = self.id.map(|id| text(id, "media id")).transpose()?;
        if id.as_ref().is_some_and(String::is_empty) {
            return Err(Error::Invalid { field: "media id" });
        }
        Ok(Item { id: id.as_deref().map(MediaId::new), size: self.size, bytes: self.bytes })
    }
}

fn text(text: Cow<'_, str>, field: &'static str) -> Result<String, Error> {
    if text.len() > TEXT_BYTES_MAX { Err(Error::Invalid { field }) } else { Ok(text.into_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item() -> impl Strategy<Value = Item> {
        (prop::option::of("[0-9a-f]{1,64}"), prop::option::of((1_u32.., 1_u32..)), any::<u64>())
            .prop_map(|(id, size, bytes)| Item { id: id.as_deref().map(MediaId::new), size, bytes })
    }

    fn fact() -> impl Strategy<Value = Fact> {
        let validator = prop::option::of(prop_oneof![
            "\"[a-z]{0,9}\"".prop_map(Validator::Etag),
            ".{0,30}".prop_map(Validator::LastModified),
        ]);
        let engine_ids = prop::collection::vec((".{0,9}", ".{0,9}"), 0..4);
        (any::<Digest>(), validator, any::<u64>(), item(), engine_ids).prop_map(
            |(url, validator, fresh_ms, item, ids)| Fact {
                url,
                validator,
                fresh_ms,
                item,
                engine_ids: ids.iter().map(|(model, id)| (ModelName::new(model), MediaId::new(id))).collect(),
            },
        )
    }

    #[test]
    fn what_proves_nothing_is_refused() {
        let check = |change: fn(&mut Fact)| {
            let mut fact = Fact::default();
            change(&mut fact);
            let facts = Facts { facts: vec![fact], ..Facts::default() };
            Facts::decode(&facts.encode().unwrap()).is_ok()
        };
        assert!(check(|_| {}));
        assert!(!check(|fact| fact.validator = Some(Validator::Etag("W/\"a\"".to_owned()))));
        assert!(!check(|fact| fact.validator = Some(Validator::LastModified("x".repeat(1025)))));
        assert!(!check(|fact| fact.item.id = Some(MediaId::new(""))));
        assert!(!check(|fact| fact.item.size = Some((0, 1))));
        assert!(!check(|fact| fact.engine_ids = vec![(ModelName::new("m"), MediaId::new("x")); 17]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn facts_survive(
            facts in prop::collection::vec(fact(), 0..5),
            names in prop::collection::vec((any::<Digest>(), item()), 0..5),
            sent_ms: u64,
        ) {
            let names = names.into_iter().map(|(name, item)| Name { name, item }).collect();
            let facts = Facts { frontend: "f0".to_owned(), sent_ms, facts, names };
            prop_assert_eq!(Facts::decode(&facts.encode().unwrap()).unwrap(), facts);
        }

        #[test]
        fn noise_is_refused_without_panic(noise in any::<Vec<u8>>()) {
            drop(Facts::decode(&noise));
        }
    }
}
