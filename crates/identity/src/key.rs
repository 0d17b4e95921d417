//! Block keys, scheme `sl1`.
//!
//! ```text
//! root     = xxh3( "sl1" 0x1f secret 0x1f lora_name 0x1f cache_salt )
//! local[i] = xxh3( tokens[i·bs … (i+1)·bs) as u32 LE ‖ media keys of the items that overlap, as u64 LE )
//! key[i]   = xxh3( key[i-1] u64 LE ‖ local[i] u64 LE ),   key[-1] = root
//! ```

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::chain;
use crate::media::MediaSpan;

#[cfg(target_endian = "big")]
compile_error!("sl1 hashes little-endian words in place");

/// Names the key scheme on the wire and in cards.
pub const SCHEME: &str = "sl1";

/// Names a block together with everything before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct BlockKey(u64);

impl BlockKey {
    /// Wraps a raw key.
    #[must_use]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the raw key.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What separates the caches of otherwise equal prompts; empty strings where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyScope<'a> {
    /// The cluster's secret.
    pub secret: &'a str,
    /// Name of the `LoRA` adapter the request runs on.
    pub lora_name: &'a str,
    /// The request's `cache_salt`.
    pub cache_salt: &'a str,
}

impl KeyScope<'_> {
    /// Computes the key that stands before a prompt's first block.
    #[must_use]
    pub fn root(&self) -> BlockKey {
        let text = [SCHEME, self.secret, self.lora_name, self.cache_salt].join("\u{1f}");
        BlockKey(xxh3_64(text.as_bytes()))
    }
}

/// Computes the keys of a prompt's full blocks, in order.
///
/// `media` is ordered by first token; ranges do not overlap each other. A partial last block has no key.
#[must_use]
pub fn block_keys(root: BlockKey, tokens: &[u32], media: &[MediaSpan], block_size: u32) -> Vec<BlockKey> {
    let size = usize::try_from(block_size.max(1)).unwrap_or(usize::MAX);
    let mut keys = Vec::with_capacity(tokens.len() / size);
    extend_keys(&mut keys, root, tokens, media, block_size);
    keys
}

/// Completes a prompt's keys of which the first `keys.len()` are there already; see [`block_keys`].
///
/// The hash of a block's content does not depend on the key before it, so the processor works on the next blocks while
/// the chain waits for its last step.
pub fn extend_keys(
    keys: &mut Vec<BlockKey>,
    root: BlockKey,
    tokens: &[u32],
    media: &[MediaSpan],
    block_size: u32,
) {
    let size = usize::try_from(block_size.max(1)).unwrap_or(usize::MAX);
    let known = keys.len().saturating_mul(size);
    let mut key = keys.last().copied().unwrap_or(root);
    let mut ahead = media;
    let mut content: Vec<u32> = Vec::new();
    let mut rest = tokens.get(known..).unwrap_or_default();
    let mut start = u32::try_from(known).unwrap_or(u32::MAX);
    while rest.len() >= size {
        let same = stretch(&mut ahead, start, block_size.max(1));
        let (blocks, later) = rest.split_at_checked(same.blocks.saturating_mul(size)).unwrap_or((rest, &[]));
        if same.items == 0 {
            for block in blocks.chunks_exact(size) {
                key = chain_key(key, xxh3_64(bytemuck::cast_slice(block)));
                keys.push(key);
            }
        } else {
            content.clear();
            content.resize(size, 0);
            ahead.iter().take(same.items).for_each(|span| content.extend_from_slice(&halves(span.key.get())));
            for block in blocks.chunks_exact(size) {
                if let Some(place) = content.get_mut(..size) {
                    place.copy_from_slice(block);
                }
                key = chain_key(key, xxh3_64(bytemuck::cast_slice(&content)));
                keys.push(key);
            }
        }
        if later.is_empty() {
            break;
        }
        start = start.saturating_add(u32::try_from(blocks.len()).unwrap_or(u32::MAX));
        rest = later;
    }
}

/// Consecutive blocks that the same media items overlap.
struct Stretch {
    /// How many of the items ahead.
    items: usize,
    blocks: usize,
}

/// Finds how long the items that overlap the block at `start` stay the same; drops those that ended before it.
fn stretch(ahead: &mut &[MediaSpan], start: u32, block_size: u32) -> Stretch {
    while let Some((span, rest)) = ahead.split_first()
        && span.end() <= start
    {
        *ahead = rest;
    }
    let end = start.saturating_add(block_size);
    let items = ahead.iter().take_while(|span| span.start < end).count();
    // The set changes with the block after the one in which its first item ends, or with the one in which another begins.
    let ended = ahead
        .first()
        .filter(|_| items > 0)
        .map_or(u32::MAX, |span| (span.end() - start).div_ceil(block_size));
    let begun = ahead.get(items).map_or(u32::MAX, |span| (span.start - start) / block_size);
    Stretch { items, blocks: usize::try_from(ended.min(begun)).unwrap_or(usize::MAX).max(1) }
}

/// Cuts a word into what little-endian order puts first and second.
#[expect(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Computes the key of the block that follows `parent`, from its tokens and the media keys that overlap it in order.
#[must_use]
pub fn extend_key(parent: BlockKey, tokens: &[u32], media: impl IntoIterator<Item = u64>) -> BlockKey {
    chain_key(parent, local_key(tokens, media))
}

/// Hashes what is in a block alone (`local[i]`), from its tokens and the media keys that overlap it in order.
#[must_use]
pub fn local_key(tokens: &[u32], media: impl IntoIterator<Item = u64>) -> u64 {
    let mut media = media.into_iter().peekable();
    if media.peek().is_none() {
        return xxh3_64(bytemuck::cast_slice(tokens));
    }
    let mut content = tokens.to_vec();
    media.for_each(|key| content.extend_from_slice(&halves(key)));
    xxh3_64(bytemuck::cast_slice(&content))
}

/// Computes the key of the block that follows `parent`, from the hash of what is in it alone.
#[must_use]
pub fn chain_key(parent: BlockKey, local: u64) -> BlockKey {
    BlockKey(chain::step(parent.0, local))
}
