//! From an event's tokens and extra keys to what enters block keys.

use identity::{BlockKey, KeyScope, MediaId, MediaKey, local_key};

use super::Config;
use crate::batch::{ExtraKey, ExtraKeys, Lora, Stored};

/// What a stored event's blocks contribute to keys.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The key before the first block, where the event begins a prompt and its scope is known.
    pub(super) root: Option<BlockKey>,
    /// Per block: the hash of its content; none where it is not comparable.
    pub(super) locals: Vec<Option<u64>>,
    /// Media items that begin and end in the event.
    pub(super) media: Vec<Begun>,
}

/// A media item that begins in a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) id: MediaId,
    /// Index of the block in the event.
    pub(super) block: usize,
    /// Placeholders in its range.
    pub(super) tokens: u32,
}

/// One block's extra keys, told apart.
#[derive(Debug, Default)]
struct Extras<'a> {
    media: Vec<(&'a str, Option<i64>)>,
    salt: &'a str,
}

/// Works out what the blocks of an event contribute; blocks that are not comparable contribute nothing.
pub(super) fn content(stored: &Stored, config: &Config) -> Content {
    let size = usize::try_from(config.block_size.max(1)).unwrap_or(usize::MAX);
    let blocks = stored.hashes.len();
    let mut content = Content { locals: vec![None; blocks], ..Content::default() };
    let aligned =
        stored.block_size == config.block_size && blocks.checked_mul(size) == Some(stored.tokens.len());
    let listed = match &stored.extra_keys {
        ExtraKeys::Listed(lists) if lists.len() != blocks => return content,
        ExtraKeys::Listed(lists) => Some(lists),
        ExtraKeys::Absent => None,
    };
    let lora_name = match &stored.lora {
        Lora::None => "",
        Lora::Named(name) => name,
        Lora::Unnamed => return content,
    };
    if !aligned {
        return content;
    }
    let mut salt = Some("");
    let mut begun = Vec::new();
    for (block, (tokens, local)) in stored.tokens.chunks_exact(size).zip(&mut content.locals).enumerate() {
        let first = block == 0 && stored.parent.is_none();
        let extras = match listed.and_then(|lists| lists.get(block)) {
            Some(list) => extras(list, lora_name, first, placeholder_runs(tokens, &config.placeholders)),
            // The engine does not name media: which image a placeholder stands for is unknown.
            None => (!tokens.iter().any(|token| config.placeholders.contains(token))).then(Extras::default),
        };
        if first {
            salt = extras.as_ref().map(|extras| extras.salt);
        }
        if let Some(extras) = extras {
            *local = Some(local_key(tokens, extras.media.iter().map(|(id, _)| MediaKey::of(id).get())));
            begun.extend(extras.media.iter().filter_map(|(id, offset)| {
                let offset = usize::try_from((*offset)?).ok().filter(|offset| *offset < size)?;
                Some((*id, block, block * size + offset))
            }));
        }
    }
    content.root = salt.map(|cache_salt| KeyScope { secret: &config.secret, lora_name, cache_salt }.root());
    content.media = ended(&begun, &stored.tokens, &config.placeholders);
    content
}

/// Tells a block's extra keys apart (vLLM's order: adapter, media, salt); none where they cannot be.
fn extras<'a>(list: &'a [ExtraKey], lora_name: &str, first: bool, runs: usize) -> Option<Extras<'a>> {
    let mut extras = Extras::default();
    let mut texts = Vec::new();
    for (index, key) in list.iter().enumerate() {
        match key {
            ExtraKey::Text(text) if index == 0 && !lora_name.is_empty() && **text == *lora_name => {}
            ExtraKey::Text(text) => texts.push(&**text),
            ExtraKey::Media { id, offset } => extras.media.push((id, Some(*offset))),
            ExtraKey::Opaque => return None,
        }
    }
    if texts.is_empty() {
        return Some(extras);
    }
    if !extras.media.is_empty() {
        // Media come as pairs, so the text is a salt, which only a prompt's first block has.
        extras.salt = texts.pop().filter(|_| first && texts.is_empty())?;
        return Some(extras);
    }
    // Releases 0.17 and 0.18 list media as bare ids: one per run of placeholders, a salt comes on top.
    if first && (runs == 0 || texts.len() > runs) {
        extras.salt = texts.pop()?;
    }
    if first && texts.len() > runs {
        return None;
    }
    extras.media = texts.into_iter().map(|id| (id, None)).collect();
    Some(extras)
}

fn placeholder_runs(tokens: &[u32], placeholders: &[u32]) -> usize {
    let mut runs = 0;
    let mut inside = false;
    for token in tokens {
        let placeholder = placeholders.contains(token);
        runs += usize::from(placeholder && !inside);
        inside = placeholder;
    }
    runs
}

/// Measures the items whose range of placeholders also ends in the event.
fn ended(begun: &[(&str, usize, usize)], tokens: &[u32], placeholders: &[u32]) -> Vec<Begun> {
    let mut media = Vec::new();
    for (index, (id, block, start)) in begun.iter().enumerate() {
        let stop = begun.get(index + 1).map(|(_, _, next)| *next).filter(|next| next > start);
        let (Some(range), Some(first)) =
            (tokens.get(*start..stop.unwrap_or(tokens.len())), tokens.get(*start))
        else {
            continue;
        };
        let length = range.iter().take_while(|token| *token == first).count();
        let seen = stop.is_some() || length < range.len();
        if seen && placeholders.contains(first) {
            let tokens = u32::try_from(length).unwrap_or(u32::MAX);
            media.push(Begun { id: MediaId::new(id), block: *block, tokens });
        }
    }
    media
}
