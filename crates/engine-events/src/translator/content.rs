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
    /// Media items whose range ends in the event, in order.
    pub(super) media: Vec<Item>,
    /// The item whose range reaches the event's last token: a next block that does not name it shows that it ended.
    pub(super) edge: Option<Item>,
    /// Whether the first block names an item that began before the event.
    pub(super) carries: bool,
}

/// A media item's range, as far as an event shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) id: MediaId,
    /// Index of the block in which it begins; below 0 for blocks before the event's first.
    pub(super) first: i64,
    /// Index of the last block that names it.
    pub(super) last: usize,
    /// Placeholders from its beginning on.
    pub(super) tokens: u32,
}

/// An item as the blocks' extra keys name it.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    id: &'a str,
    /// Index of its first token, from the event's first; below 0 before it.
    start: i64,
    /// Index of the last block that names it.
    last: usize,
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
    let mut named: Vec<Named<'_>> = Vec::new();
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
            for (id, offset) in extras.media {
                let start = offset.and_then(|offset| start_of(block, offset, size));
                let Some(start) = start else { continue };
                name(&mut named, Named { id, start, last: block });
            }
        }
    }
    content.root = salt.map(|cache_salt| KeyScope { secret: &config.secret, lora_name, cache_salt }.root());
    content.carries = named.iter().any(|item| item.start < 0);
    content.measure(&named, &stored.tokens, size, &config.placeholders);
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

/// Longest distance, in tokens, between an item's beginning and a block that names it.
const REACH_MAX: i64 = 1 << 24;

/// Turns an offset in a block to an index from the event's first token; none for nonsense.
fn start_of(block: usize, offset: i64, size: usize) -> Option<i64> {
    let (begin, size) = (i64::try_from(block.checked_mul(size)?).ok()?, i64::try_from(size).ok()?);
    (-REACH_MAX..size).contains(&offset).then(|| begin.saturating_add(offset))
}

/// Adds an item that a block names, or stretches the one that the block before named too.
fn name<'a>(named: &mut Vec<Named<'a>>, item: Named<'a>) {
    let mut recent = named.iter_mut().rev().take_while(|known| known.last + 1 >= item.last);
    match recent.find(|known| known.start == item.start && known.id == item.id) {
        Some(known) => known.last = item.last,
        None => named.push(item),
    }
}

impl Content {
    /// Measures the items that the event shows to the end of their placeholders.
    fn measure(&mut self, named: &[Named<'_>], tokens: &[u32], size: usize, placeholders: &[u32]) {
        for (index, item) in named.iter().enumerate() {
            let next = named.get(index + 1).map(|next| next.start).filter(|next| *next > item.start);
            let stop = next.and_then(|next| usize::try_from(next).ok());
            let from = usize::try_from(item.start).unwrap_or(0);
            let end = (item.last + 1).saturating_mul(size).min(stop.unwrap_or(usize::MAX)).min(tokens.len());
            let Some(range) = tokens.get(from..end) else { continue };
            let Some(first) = range.first().filter(|first| placeholders.contains(first)) else { continue };
            let run = range.iter().take_while(|token| *token == first).count();
            // Other tokens stand among the placeholders where blocks after the run still name the item.
            let plain = from + run > item.last * size;
            let length = if plain {
                run
            } else {
                range.iter().rposition(|token| token == first).map_or(0, |at| at + 1)
            };
            let before = u64::try_from(item.start.saturating_neg()).unwrap_or(0);
            let item = Item {
                id: MediaId::new(item.id),
                first: item.start.div_euclid(i64::try_from(size).unwrap_or(i64::MAX)),
                last: item.last,
                tokens: u32::try_from(before.saturating_add(length as u64)).unwrap_or(u32::MAX),
            };
            let shown = stop.is_some() || item.last + 1 < self.locals.len() || (plain && from + run < end);
            if shown {
                self.media.push(item);
            } else if plain {
                self.edge = Some(item);
            }
        }
    }
}
