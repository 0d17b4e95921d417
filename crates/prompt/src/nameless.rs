//! Media whose names the engine makes up, told by where the engine says that a name begins.

use std::sync::Arc;

use identity::{BlockKey, MediaId, MediaKey, MediaSpan, extend_key, extend_keys};

use crate::prepared::PlacedMedia;

/// A prompt's media, some without a name: enough to tell whether a name fits the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nameless {
    root: BlockKey,
    tokens: Arc<[u32]>,
    media: Vec<(PlacedMedia, Option<MediaKey>)>,
}

/// An item as an engine's events show it: its name, and the key of the block in which it begins.
pub type Sighted<'a> = (&'a MediaId, BlockKey);

impl Nameless {
    pub(crate) fn new(root: BlockKey, tokens: &[u32], media: Vec<(PlacedMedia, Option<MediaKey>)>) -> Self {
        Self { root, tokens: Arc::from(tokens), media }
    }

    /// Returns how many tokens are kept for it.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Lists the items without a name, by index among the request's media, in order of appearance.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.media.iter().filter(|(_, key)| key.is_none()).map(|(item, _)| item.index)
    }

    /// Finds names among those an engine has shown, by index among the request's media.
    ///
    /// A name fits if the key of the block in which its item begins is what the prompt's block would have with it: the
    /// block itself, all before it and the name must be right for that. Items are named in order of appearance, up to
    /// the first one that no name fits, or several do. Of an item that begins within the first `cached_tokens`, which
    /// the engine had before, nothing was shown for this prompt's sake.
    #[must_use]
    pub fn solve(
        &self,
        block_size: u32,
        cached_tokens: u32,
        sighted: &[Sighted<'_>],
    ) -> Vec<(usize, MediaId)> {
        let cached_tokens = usize::try_from(cached_tokens).unwrap_or(usize::MAX);
        let mut found: Vec<(usize, MediaId)> = Vec::new();
        let mut spans: Vec<MediaSpan> = Vec::new();
        let mut keys: Vec<BlockKey> = Vec::new();
        for (at, (item, key)) in self.media.iter().enumerate() {
            let key = match key {
                Some(key) => *key,
                None if item.offset < cached_tokens => return found,
                None => {
                    let fits =
                        self.place(at, block_size, (&mut keys, &spans)).and_then(|place| place.only(sighted));
                    let Some(id) = fits else { return found };
                    found.push((item.index, id.clone()));
                    id.key()
                }
            };
            spans.push(item.span(key));
        }
        found
    }

    /// Describes the block in which an item begins; none if the engine never names it alone, or never as a whole.
    fn place(
        &self,
        at: usize,
        block_size: u32,
        (keys, spans): (&mut Vec<BlockKey>, &[MediaSpan]),
    ) -> Option<Place<'_>> {
        let size = usize::try_from(block_size.max(1)).ok()?;
        let (item, _) = self.media.get(at)?;
        let start = item.offset / size * size;
        let block = self.tokens.get(start..start + size)?;
        let shares =
            |(other, key): &&(PlacedMedia, Option<MediaKey>)| (other.offset < start + size).then_some(*key);
        let after: Option<Vec<MediaKey>> =
            self.media.iter().skip(at + 1).map_while(|it| shares(&it)).collect();
        extend_keys(keys, self.root, self.tokens.get(..start)?, spans, block_size);
        let from = u32::try_from(start).ok()?;
        let before = spans.iter().filter(|span| span.end() > from).map(|span| span.key.get());
        Some(Place {
            parent: keys.last().copied().unwrap_or(self.root),
            block,
            before: before.collect(),
            after: after?.into_iter().map(MediaKey::get).collect(),
        })
    }
}

/// A block, but for one of the names in it.
struct Place<'a> {
    parent: BlockKey,
    block: &'a [u32],
    before: Vec<u64>,
    after: Vec<u64>,
}

impl Place<'_> {
    /// Finds the name that fits, if it is the only one.
    fn only<'s>(&self, sighted: &[Sighted<'s>]) -> Option<&'s MediaId> {
        let mut fitting =
            sighted.iter().filter(|(id, first_key)| self.with(id) == *first_key).map(|(id, _)| *id);
        let first = fitting.next()?;
        fitting.all(|other| other == first).then_some(first)
    }

    fn with(&self, id: &MediaId) -> BlockKey {
        let media = self.before.iter().copied().chain([id.key().get()]).chain(self.after.iter().copied());
        extend_key(self.parent, self.block, media)
    }
}

#[cfg(test)]
mod tests {
    use identity::block_keys;
    use proptest::prelude::*;

    use super::*;

    const ROOT: BlockKey = BlockKey::new(7);

    fn item(index: usize, offset: usize, len: usize) -> PlacedMedia {
        PlacedMedia { index, offset, len, tokens: 1, learned: false }
    }

    fn id(name: usize) -> MediaId {
        MediaId::new(&format!("engine-{name}"))
    }

    /// What an engine shows of a prompt: each item's name with the key of its first block, if that is full.
    fn shown(tokens: &[u32], media: &[(PlacedMedia, MediaId)], size: u32) -> Vec<(MediaId, BlockKey)> {
        let spans: Vec<MediaSpan> = media.iter().map(|(item, id)| item.span(id.key())).collect();
        let keys = block_keys(ROOT, tokens, &spans, size);
        let first =
            |(item, id): &(PlacedMedia, MediaId)| Some((id.clone(), *keys.get(item.offset / size as usize)?));
        media.iter().filter_map(first).collect()
    }

    fn borrowed(shown: &[(MediaId, BlockKey)]) -> Vec<Sighted<'_>> {
        shown.iter().map(|(id, key)| (id, *key)).collect()
    }

    #[test]
    fn two_names_for_one_place_are_none() {
        let tokens = [1; 64];
        let place = item(0, 20, 8);
        let mut seen = shown(&tokens, &[(place, id(1))], 16);
        let nameless = Nameless::new(ROOT, &tokens, vec![(place, None)]);
        assert_eq!(nameless.solve(16, 0, &borrowed(&seen)), [(0, id(1))]);
        seen.extend(shown(&tokens, &[(place, id(1))], 16));
        assert_eq!(nameless.solve(16, 0, &borrowed(&seen)), [(0, id(1))]);
        seen.extend(shown(&tokens, &[(place, id(2))], 16));
        assert_eq!(nameless.solve(16, 0, &borrowed(&seen)), []);
        assert_eq!(nameless.solve(16, 0, &[]), []);
        // Of what the engine had before nothing is shown: the name is another's.
        let seen = shown(&tokens, &[(place, id(1))], 16);
        assert_eq!(nameless.solve(16, 32, &borrowed(&seen)), []);
        assert_eq!(nameless.solve(16, 16, &borrowed(&seen)), [(0, id(1))]);
        // Another prompt's item does not fit, whatever its name.
        let other = shown(&[2; 64], &[(place, id(1))], 16);
        assert_eq!(nameless.solve(16, 0, &borrowed(&other)), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn names_are_the_engines(
            gaps in prop::collection::vec((0_usize..40, 1_usize..60, any::<bool>()), 1..6),
            tail in 0_usize..40,
            noise in any::<u64>(),
        ) {
            let (mut at, mut media, mut truth) = (0, Vec::new(), Vec::new());
            for (index, (gap, len, named)) in gaps.into_iter().enumerate() {
                let placed = item(index, at + gap, len);
                at = placed.end();
                media.push((placed, named.then(|| id(index).key())));
                truth.push((placed, id(index)));
            }
            let tokens: Vec<u32> = (0_u32..9).cycle().take(at + tail).collect();
            let mut seen = shown(&tokens, &truth, 16);
            seen.reverse();
            seen.push((id(99), BlockKey::new(noise)));
            let found = Nameless::new(ROOT, &tokens, media.clone()).solve(16, 0, &borrowed(&seen));
            prop_assert!(found.iter().all(|(index, name)| *name == id(*index)));
            // All of them, up to the first that begins in a block with another nameless one, or in one that is not full.
            let wanted = media.iter().filter(|(_, key)| key.is_none()).map(|(item, _)| *item);
            let wanted: Vec<PlacedMedia> = wanted.collect();
            let clear = |(at, place): &(usize, &PlacedMedia)| {
                let end = (place.offset / 16 + 1) * 16;
                end <= tokens.len() && wanted.get(at + 1).is_none_or(|next| next.offset >= end)
            };
            let expected = wanted.iter().enumerate().take_while(clear).count();
            prop_assert_eq!(found.len(), expected);
        }
    }
}
