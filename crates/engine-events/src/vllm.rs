//! vLLM's KV events: `MessagePack`, arrays up to release 0.23, maps from 0.24 on.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a schema names the tokens it takes; all others are one error"
)]

use crate::batch::{
    Batch, EngineHash, Event, ExtraKey, ExtraKeys, GroupKind, HASH_BYTES_MAX, Lora, Place, Removed,
};
use crate::batch::{Stored, Tier};
use crate::msgpack::{Error, Reader, Token};

/// Kinds of KV-cache groups in which every block of a prefix is kept (vLLM's `KVCacheSpecKind`).
const FULL_KINDS: [&str; 3] = ["full_attention", "mla_attention", "mla"];

/// Reads one batch, of any release.
///
/// An event that cannot be read is left out and counted; the others stand.
///
/// # Errors
/// The payload as a whole is no batch: count it and treat it as lost.
pub fn decode(payload: &[u8]) -> Result<Batch, Error> {
    let mut reader = Reader::new(payload);
    let Token::Array(length @ 2..) = reader.token()? else {
        return Err(Error::Kind { expected: "batch of at least two elements" });
    };
    reader.skip()?;
    let Token::Array(events) = reader.token()? else {
        return Err(Error::Kind { expected: "array of events" });
    };
    let mut batch = Batch { events: Vec::with_capacity(reader.capacity(events)), ..Batch::default() };
    for _ in 0..events {
        match event(reader.skip()?) {
            Ok(Some(event)) => batch.events.push(event),
            Ok(None) => batch.unknown = batch.unknown.saturating_add(1),
            Err(_) => batch.malformed = batch.malformed.saturating_add(1),
        }
    }
    if length > 2 {
        batch.rank = reader.word_or_nil()?.and_then(|rank| u16::try_from(rank).ok());
    }
    Ok(batch)
}

/// The fields of all events, by their names in the map form and their places in the array form.
#[derive(Default)]
struct Fields<'a> {
    hashes: Option<&'a [u8]>,
    parent: Option<&'a [u8]>,
    tokens: Option<&'a [u8]>,
    block_size: Option<&'a [u8]>,
    lora_id: Option<&'a [u8]>,
    medium: Option<&'a [u8]>,
    lora_name: Option<&'a [u8]>,
    extra_keys: Option<&'a [u8]>,
    group: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn named(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        Some(match name {
            b"block_hashes" => &mut self.hashes,
            b"parent_block_hash" => &mut self.parent,
            b"token_ids" => &mut self.tokens,
            b"block_size" => &mut self.block_size,
            b"lora_id" => &mut self.lora_id,
            b"medium" => &mut self.medium,
            b"lora_name" => &mut self.lora_name,
            b"extra_keys" => &mut self.extra_keys,
            b"group_idx" => &mut self.group,
            b"kv_cache_spec_kind" => &mut self.kind,
            _ => return None,
        })
    }
}

/// Order of the fields behind the tag in the array form.
const STORED_ORDER: [&[u8]; 10] = [
    b"block_hashes",
    b"parent_block_hash",
    b"token_ids",
    b"block_size",
    b"lora_id",
    b"medium",
    b"lora_name",
    b"extra_keys",
    b"group_idx",
    b"kv_cache_spec_kind",
];
const REMOVED_ORDER: [&[u8]; 3] = [b"block_hashes", b"medium", b"group_idx"];

fn event(bytes: &[u8]) -> Result<Option<Event>, Error> {
    let mut reader = Reader::new(bytes);
    let mut fields = Fields::default();
    let tag = match reader.token()? {
        Token::Array(length @ 1..) => {
            let tag = reader.text_or_nil()?.ok_or(Error::Kind { expected: "event tag" })?;
            let order: &[&[u8]] = if tag == "BlockStored" { &STORED_ORDER } else { &REMOVED_ORDER };
            for place in 1..length {
                let value = reader.skip()?;
                let name = usize::try_from(place - 1).ok().and_then(|index| order.get(index));
                if let Some(field) = name.and_then(|name| fields.named(name)) {
                    *field = Some(value);
                }
            }
            tag
        }
        Token::Map(length) => {
            let mut tag = None;
            for _ in 0..length {
                let Token::Text(name) = reader.token()? else {
                    return Err(Error::Kind { expected: "field name" });
                };
                if name == b"type" {
                    tag = reader.text_or_nil()?;
                } else {
                    let value = reader.skip()?;
                    if let Some(field) = fields.named(name) {
                        *field = Some(value);
                    }
                }
            }
            tag.ok_or(Error::Kind { expected: "event tag" })?
        }
        _ => return Err(Error::Kind { expected: "event" }),
    };
    Ok(match tag {
        "BlockStored" => Some(Event::Stored(stored(&fields)?)),
        "BlockRemoved" => Some(Event::Removed(Removed {
            hashes: hashes(required(fields.hashes)?)?,
            place: place(&fields)?,
        })),
        "AllBlocksCleared" => Some(Event::Cleared),
        _ => None,
    })
}

fn stored(fields: &Fields<'_>) -> Result<Stored, Error> {
    let mut parent = fields.parent.map(Reader::new);
    let parent = parent.as_mut().map(Reader::token).transpose()?.filter(|token| *token != Token::Nil);
    Ok(Stored {
        hashes: hashes(required(fields.hashes)?)?,
        parent: parent.map(hash).transpose()?,
        tokens: tokens(required(fields.tokens)?)?,
        block_size: Reader::new(required(fields.block_size)?).word()?,
        lora: lora(fields)?,
        extra_keys: fields.extra_keys.map_or(Ok(ExtraKeys::Absent), extra_keys)?,
        place: place(fields)?,
    })
}

fn required(field: Option<&[u8]>) -> Result<&[u8], Error> {
    field.ok_or(Error::Kind { expected: "a field that is missing" })
}

fn hashes(bytes: &[u8]) -> Result<Vec<EngineHash>, Error> {
    let mut reader = Reader::new(bytes);
    let length = reader.array_or_nil()?.unwrap_or(0);
    let mut hashes = Vec::with_capacity(reader.capacity(length));
    for _ in 0..length {
        hashes.push(hash(reader.token()?)?);
    }
    Ok(hashes)
}

fn hash(token: Token<'_>) -> Result<EngineHash, Error> {
    match token {
        Token::Unsigned(word) => Ok(EngineHash::Int(word)),
        Token::Negative(word) => Ok(EngineHash::Int(word.cast_unsigned())),
        Token::Binary(bytes) | Token::Text(bytes) if (1..=HASH_BYTES_MAX).contains(&bytes.len()) => {
            Ok(EngineHash::Bytes(bytes.into()))
        }
        _ => Err(Error::Kind { expected: "block hash" }),
    }
}

fn tokens(bytes: &[u8]) -> Result<Vec<u32>, Error> {
    let mut reader = Reader::new(bytes);
    let length = reader.array_or_nil()?.unwrap_or(0);
    let mut tokens = Vec::with_capacity(reader.capacity(length));
    for _ in 0..length {
        tokens.push(reader.word()?);
    }
    Ok(tokens)
}

fn lora(fields: &Fields<'_>) -> Result<Lora, Error> {
    let name = fields.lora_name.map(|bytes| Reader::new(bytes).text_or_nil()).transpose()?.flatten();
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return Ok(Lora::Named(name.into()));
    }
    let id = fields.lora_id.map(|bytes| Reader::new(bytes).token()).transpose()?;
    Ok(if matches!(id, None | Some(Token::Nil)) { Lora::None } else { Lora::Unnamed })
}

fn place(fields: &Fields<'_>) -> Result<Place, Error> {
    let medium = fields.medium.map(|bytes| Reader::new(bytes).text_or_nil()).transpose()?.flatten();
    let kind = fields.kind.map(|bytes| Reader::new(bytes).text_or_nil()).transpose()?.flatten();
    Ok(Place {
        tier: if medium.is_none_or(|medium| medium.eq_ignore_ascii_case("gpu")) {
            Tier::Gpu
        } else {
            Tier::Other
        },
        group: fields.group.map(|bytes| Reader::new(bytes).word_or_nil()).transpose()?.flatten().unwrap_or(0),
        kind: kind.map(|kind| if FULL_KINDS.contains(&kind) { GroupKind::Full } else { GroupKind::Partial }),
    })
}

fn extra_keys(bytes: &[u8]) -> Result<ExtraKeys, Error> {
    let mut reader = Reader::new(bytes);
    let Some(length) = reader.array_or_nil()? else {
        return Ok(ExtraKeys::Absent);
    };
    let mut blocks = Vec::with_capacity(reader.capacity(length));
    for _ in 0..length {
        let entries = reader.array_or_nil()?.unwrap_or(0);
        let mut block = Vec::with_capacity(reader.capacity(entries));
        for _ in 0..entries {
            block.push(extra_key(reader.skip()?)?);
        }
        blocks.push(block);
    }
    Ok(ExtraKeys::Listed(blocks))
}

fn extra_key(bytes: &[u8]) -> Result<ExtraKey, Error> {
    let mut reader = Reader::new(bytes);
    Ok(match reader.token()? {
        Token::Text(text) => {
            std::str::from_utf8(text).map_or(ExtraKey::Opaque, |text| ExtraKey::Text(text.into()))
        }
        Token::Array(2) => {
            let (id, offset) = (reader.token()?, reader.token()?);
            let offset = match offset {
                Token::Unsigned(offset) => i64::try_from(offset).ok(),
                Token::Negative(offset) => Some(offset),
                _ => None,
            };
            match (id, offset) {
                (Token::Text(id), Some(offset)) => std::str::from_utf8(id)
                    .map_or(ExtraKey::Opaque, |id| ExtraKey::Media { id: id.into(), offset }),
                _ => ExtraKey::Opaque,
            }
        }
        _ => ExtraKey::Opaque,
    })
}
