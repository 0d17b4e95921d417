//! The simulated engine's own block hash: sha256 over parent, tokens and extra keys.
//!
//! ```text
//! digest[i] = sha256( digest[i-1] ‖ tokens as u32 LE ‖ extra* )      digest[-1] = sha256("engine-sim")
//! extra     = 0x01 ‖ len u64 LE ‖ identity ‖ offset i64 LE           a media item overlapping the block
//!           | 0x02 ‖ len u64 LE ‖ salt                               block 0 of a salted request
//! ```
//! Neither vLLM's bytes nor the router's keys: whoever reads the events has to treat it as opaque.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Names a block together with everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockHash([u8; 32]);

impl BlockHash {
    /// Returns the parent of every first block.
    #[must_use]
    pub(crate) fn root() -> Self {
        Self(Sha256::digest(b"engine-sim").into())
    }

    /// Returns the whole digest.
    #[must_use]
    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the last 8 bytes as a big-endian number: the form in which vLLM's events carry a hash by default.
    #[must_use]
    pub(crate) const fn low_u64(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Where a media item's placeholder tokens lie in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MediaRange {
    /// By what the engine knows the item: the request's `uuid`, else a hash of its bytes.
    pub(crate) identity: Arc<str>,
    /// First placeholder token.
    pub(crate) offset: u32,
    /// Number of tokens in the range; at least 1.
    pub(crate) len: u32,
}

impl MediaRange {
    /// Returns the first token after the range.
    #[must_use]
    pub(crate) const fn end(&self) -> u32 {
        self.offset.saturating_add(self.len)
    }

    /// Says whether the range shares a token with `[start, end)`.
    #[must_use]
    pub(crate) const fn overlaps(&self, start: u32, end: u32) -> bool {
        self.offset < end && start < self.end()
    }
}

/// What distinguishes two blocks of equal tokens, as the events spell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtraKey {
    /// A media item overlapping the block.
    Media {
        /// The item's identity.
        identity: Arc<str>,
        /// Item start minus block start; may be negative.
        offset: i64,
    },
    /// The request's cache salt; in block 0 only.
    Salt(Arc<str>),
}

/// What a prompt's blocks depend on besides its tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Media items by first token.
    pub(crate) media: Arc<[MediaRange]>,
    /// The request's `cache_salt`, never empty.
    pub(crate) salt: Option<Arc<str>>,
}

impl Scope {
    /// Returns the extra keys of the block `[start, end)`: media in order of appearance, then the salt.
    #[must_use]
    pub(crate) fn extra_keys(&self, start: u32, end: u32) -> Vec<ExtraKey> {
        let from = self.media.partition_point(|item| item.end() <= start);
        let items = self.media.iter().skip(from).take_while(|item| item.offset < end);
        let mut keys: Vec<ExtraKey> = items
            .filter(|item| item.overlaps(start, end))
            .map(|item| ExtraKey::Media {
                identity: Arc::clone(&item.identity),
                offset: i64::from(item.offset) - i64::from(start),
            })
            .collect();
        if start == 0 {
            keys.extend(self.salt.iter().map(|salt| ExtraKey::Salt(Arc::clone(salt))));
        }
        keys
    }

    /// Hashes the full blocks of a prompt, those after the ones that `hashes` has already.
    pub(crate) fn extend_hashes(&self, hashes: &mut Vec<BlockHash>, tokens: &[u32], block_size: u32) {
        let done = hashes.len() * block_size as usize;
        let mut parent = hashes.last().copied().unwrap_or_else(BlockHash::root);
        let mut start = u32::try_from(done).unwrap_or(u32::MAX);
        for block in tokens.get(done..).unwrap_or_default().chunks_exact(block_size as usize) {
            parent = self.hash(&parent, start, block);
            hashes.push(parent);
            start += block_size;
        }
    }

    /// Hashes the tokens `[start, start + tokens.len())` after `parent`.
    #[must_use]
    pub(crate) fn hash(&self, parent: &BlockHash, start: u32, tokens: &[u32]) -> BlockHash {
        let mut hasher = Sha256::new();
        hasher.update(parent.0);
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        let end = start.saturating_add(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        for key in self.extra_keys(start, end) {
            match key {
                ExtraKey::Media { identity, offset } => {
                    update_framed(&mut hasher, 1, &identity);
                    hasher.update(offset.to_le_bytes());
                }
                ExtraKey::Salt(salt) => update_framed(&mut hasher, 2, &salt),
            }
        }
        BlockHash(hasher.finalize().into())
    }
}

fn update_framed(hasher: &mut Sha256, tag: u8, text: &str) {
    hasher.update([tag]);
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(media: &[(&str, u32, u32)], salt: Option<&str>) -> Scope {
        let media = media.iter().map(|&(identity, offset, len)| MediaRange {
            identity: identity.into(),
            offset,
            len,
        });
        Scope { media: media.collect(), salt: salt.map(Arc::from) }
    }

    fn media(identity: &str, offset: i64) -> ExtraKey {
        ExtraKey::Media { identity: identity.into(), offset }
    }

    #[test]
    fn every_block_touching_an_item_lists_it_with_its_relative_start() {
        let scope = scope(&[("A", 15, 80), ("B", 95, 1), ("C", 200, 4)], None);
        let keys: Vec<_> = (0..4).map(|block| scope.extra_keys(block * 32, block * 32 + 32)).collect();
        assert_eq!(keys[0], [media("A", 15)]);
        assert_eq!(keys[1], [media("A", -17)]);
        assert_eq!(keys[2], [media("A", -49), media("B", 31)]);
        assert_eq!(keys[3], []);
    }

    #[test]
    fn the_salt_follows_media_in_the_first_block_only() {
        let scope = scope(&[("A", 15, 80)], Some("s"));
        assert_eq!(scope.extra_keys(0, 32), [media("A", 15), ExtraKey::Salt("s".into())]);
        assert_eq!(scope.extra_keys(32, 64), [media("A", -17)]);
    }

    #[test]
    fn the_hash_depends_on_parent_tokens_media_and_salt() {
        let tokens = [7_u32; 16];
        let root = BlockHash::root();
        let plain = scope(&[], None).hash(&root, 0, &tokens);
        let others = [
            scope(&[], None).hash(&plain, 0, &tokens),
            scope(&[], None).hash(&root, 0, &[8; 16]),
            scope(&[("A", 0, 16)], None).hash(&root, 0, &tokens),
            scope(&[("B", 0, 16)], None).hash(&root, 0, &tokens),
            scope(&[("A", 1, 15)], None).hash(&root, 0, &tokens),
            scope(&[], Some("A")).hash(&root, 0, &tokens),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(&plain, other);
            assert!(!others[..i].contains(other));
        }
        assert_eq!(plain, scope(&[("A", 16, 1)], None).hash(&root, 0, &tokens));
    }

    #[test]
    fn the_wire_form_is_the_last_eight_bytes() {
        let hash = BlockHash(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        assert_eq!(hash.low_u64(), 0x1819_1a1b_1c1d_1e1f);
    }
}
