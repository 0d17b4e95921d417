//! Keys of prompts that begin alike, computed once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::chain;
use crate::key::{BlockKey, extend_keys};
use crate::media::MediaSpan;

/// A stretch of a prompt that recurs as a whole: a system prompt, a message, a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Names its tokens and media, whatever stands before it: a hash made when it was tokenised.
    pub id: u64,
    /// Its length, in tokens.
    pub tokens: u32,
}

/// A prompt to compute keys of.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// The key before the first block.
    pub root: BlockKey,
    /// All tokens.
    pub tokens: &'a [u32],
    /// Media items by first token.
    pub media: &'a [MediaSpan],
    /// Tokens in a block.
    pub block_size: u32,
}

/// Remembers the keys of prompts by their segments, so that a prompt that goes on from a known one hashes only what is new.
///
/// Bounded by the blocks it remembers; what was not asked for while half of them were replaced is forgotten.
#[derive(Debug)]
pub struct KeyCache {
    young: Generation,
    old: Generation,
    blocks_max: usize,
}

#[derive(Debug, Default)]
struct Generation {
    /// By the chain of segments up to here: the keys of a prompt that had it, and how many of them are whole by then.
    known: HashMap<u64, (Arc<[BlockKey]>, usize)>,
    blocks: usize,
}

impl KeyCache {
    /// Makes an empty cache for about so many blocks (8 bytes each).
    #[must_use]
    pub fn new(blocks_max: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), blocks_max }
    }

    /// Computes a prompt's keys, as [`crate::block_keys`] does, going on from the longest run of first segments known.
    ///
    /// `segments` cover the prompt's tokens from the first; what they leave uncovered at the end is hashed and not
    /// remembered. A segment's id must differ where its tokens or media do.
    #[must_use]
    pub fn keys(&mut self, prompt: &Prompt<'_>, segments: &[Segment]) -> Arc<[BlockKey]> {
        let chained = chained(prompt, segments);
        let known = chained.iter().rev().find_map(|(name, whole)| Some((self.find(*name)?, *whole)));
        let mut keys: Vec<BlockKey> = Vec::new();
        if let Some(((found, whole), wanted)) = known {
            if wanted == found.len() && prompt.tokens.len() / size(prompt) == wanted {
                return found;
            }
            keys.reserve(prompt.tokens.len() / size(prompt));
            keys.extend_from_slice(found.get(..whole.min(wanted)).unwrap_or_default());
        }
        extend_keys(&mut keys, prompt.root, prompt.tokens, prompt.media, prompt.block_size);
        let keys: Arc<[BlockKey]> = keys.into();
        self.remember(&keys, &chained);
        keys
    }

    fn find(&mut self, name: u64) -> Option<(Arc<[BlockKey]>, usize)> {
        if let Some(found) = self.young.known.get(&name) {
            return Some(found.clone());
        }
        let (keys, whole) = self.old.known.remove(&name)?;
        self.young.blocks += keys.len();
        self.young.known.insert(name, (Arc::clone(&keys), whole));
        Some((keys, whole))
    }

    fn remember(&mut self, keys: &Arc<[BlockKey]>, chained: &[(u64, usize)]) {
        if keys.len() * 2 > self.blocks_max {
            return;
        }
        if (self.young.blocks + keys.len()) * 2 > self.blocks_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.blocks += keys.len();
        for (name, whole) in chained {
            self.young.known.entry(*name).or_insert_with(|| (Arc::clone(keys), *whole));
        }
    }
}

/// Names each beginning of a prompt by its segments, with how many blocks are whole by its end.
fn chained(prompt: &Prompt<'_>, segments: &[Segment]) -> Vec<(u64, usize)> {
    let mut name = chain::step(prompt.root.get(), u64::from(prompt.block_size));
    let mut tokens = 0_usize;
    let ends = segments.iter().map(|segment| {
        name = chain::step(chain::step(name, segment.id), u64::from(segment.tokens));
        tokens += usize::try_from(segment.tokens).unwrap_or(usize::MAX);
        (name, tokens.min(prompt.tokens.len()) / size(prompt))
    });
    ends.collect()
}

fn size(prompt: &Prompt<'_>) -> usize {
    usize::try_from(prompt.block_size.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{KeyCache, Prompt, Segment};
    use crate::key::{BlockKey, block_keys};
    use crate::media::{MediaKey, MediaSpan};
    use proptest::prelude::*;

    /// Segment `id` is so many tokens of its own; odd ones are an image throughout.
    fn prompt_of(ids: &[u32]) -> (Vec<Segment>, Vec<u32>, Vec<MediaSpan>) {
        let (mut segments, mut tokens, mut media) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for id in ids {
            let len = id * 7 % 23 + 1;
            if id % 2 == 1 {
                media.push(MediaSpan { key: MediaKey::new(u64::from(*id)), start, len });
            }
            tokens.extend((0..len).map(|at| id * 100 + at));
            segments.push(Segment { id: u64::from(*id), tokens: len });
            start += len;
        }
        (segments, tokens, media)
    }

    proptest! {
        #[test]
        fn cached_keys_equal_computed_ones(
            prompts in prop::collection::vec((prop::collection::vec(0_u32..6, 0..12), 1_u32..9), 1..60),
            blocks_max in 0_usize..400,
        ) {
            let mut cache = KeyCache::new(blocks_max);
            for (ids, block_size) in prompts {
                let (segments, tokens, media) = prompt_of(&ids);
                let prompt = Prompt { root: BlockKey::new(7), tokens: &tokens, media: &media, block_size };
                let computed = block_keys(prompt.root, &tokens, &media, block_size);
                prop_assert_eq!(&*cache.keys(&prompt, &segments), &computed[..]);
                let half = segments.len() / 2;
                prop_assert_eq!(&*cache.keys(&prompt, &segments[..half]), &computed[..]);
                prop_assert!(cache.young.blocks <= blocks_max.max(1) * 2);
            }
        }
    }
}
