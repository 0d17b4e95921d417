//! Block keys, scheme `sl1`.
//!
//! ```text
//! root     = xxh3( "sl1" 0x1f secret 0x1f lora_name 0x1f cache_salt )
//! local[i] = xxh3( tokens[i·bs … (i+1)·bs) as u32 LE ‖ media keys of the items that overlap, as u64 LE )
//! key[i]   = xxh3( key[i-1] u64 LE ‖ local[i] u64 LE ),   key[-1] = root
//! ```

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

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
    let mut key = root;
    let mut ahead = media;
    for (block, start) in tokens.chunks_exact(size).zip((0_u32..).step_by(size)) {
        let end = start.saturating_add(block_size);
        while let Some((span, rest)) = ahead.split_first()
            && span.end() <= start
        {
            ahead = rest;
        }
        let overlapping = ahead.iter().take_while(|span| span.start < end).filter(|span| span.end() > start);
        key = extend_key(key, block, overlapping.map(|span| span.key.get()));
        keys.push(key);
    }
    keys
}

/// Computes the key of the block that follows `parent`, from its tokens and the media keys that overlap it in order.
#[must_use]
pub fn extend_key(parent: BlockKey, tokens: &[u32], media: impl IntoIterator<Item = u64>) -> BlockKey {
    chain_key(parent, local_key(tokens, media))
}

/// Hashes what is in a block alone (`local[i]`), from its tokens and the media keys that overlap it in order.
#[must_use]
pub fn local_key(tokens: &[u32], media: impl IntoIterator<Item = u64>) -> u64 {
    let words: &[u8] = bytemuck::cast_slice(tokens);
    let mut media = media.into_iter().peekable();
    if media.peek().is_none() {
        return xxh3_64(words);
    }
    let mut bytes = Vec::with_capacity(words.len() + 16);
    bytes.extend_from_slice(words);
    for key in media {
        bytes.extend_from_slice(&key.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Computes the key of the block that follows `parent`, from the hash of what is in it alone.
#[must_use]
pub fn chain_key(parent: BlockKey, local: u64) -> BlockKey {
    let pair = [parent.0, local];
    BlockKey(xxh3_64(bytemuck::cast_slice(&pair)))
}
