//! Puts expansions in the place of placeholders, in order of appearance.

mod newlines;
mod slots;
mod spelling;

use std::ops::Range;

use media_geometry::{Geometry, ImageSize};

use crate::fallback::Fallback;
use crate::media_part::{MediaKind, MediaPart};
use crate::prepared::{LearnedCount, MediaFact, PlacedMedia, Uncounted};
use crate::tokeniser::{Tokeniser, TokenizeError};
use newlines::Newlines;
use slots::Slot;
use spelling::Spelled;

pub(crate) use slots::Slotted;

/// How a model's prompts take media.
#[derive(Debug)]
pub(crate) struct Expander {
    geometry: Option<Geometry>,
    ids: PlaceholderIds,
    slot: Slot,
    newlines: Option<Newlines>,
}

/// The placeholder tokens of a vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceholderIds {
    pub(crate) image: Option<u32>,
    pub(crate) video: Option<u32>,
    pub(crate) audio: Option<u32>,
}

/// A prompt with its media in place.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub(crate) tokens: Vec<u32>,
    /// How many of the tokens are certain.
    pub(crate) keyed: usize,
    pub(crate) media: Vec<PlacedMedia>,
    pub(crate) fallback: Option<Fallback>,
    /// Up to where the places of media are known: past it, not only names are missing.
    pub(crate) located: usize,
    pub(crate) uncounted: Option<Uncounted>,
    /// Where the certain tokens end, while placing.
    certain: Option<usize>,
    /// Where the known places end, while placing.
    lost: Option<usize>,
    /// Where in the unexpanded tokens the first item of an unpredicted kind can stand.
    unpredicted: Option<usize>,
}

/// A request's media, as far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Media<'a> {
    pub(crate) parts: &'a [MediaPart],
    pub(crate) facts: &'a [MediaFact],
    /// What engines were seen to make of some.
    pub(crate) learned: &'a [LearnedCount],
    /// Whether the request changes how media are processed.
    pub(crate) custom: bool,
}

impl PlaceholderIds {
    /// Resolves the ids in three steps: a non-negative number in `config.json`, a configured token string, and the
    /// strings that the family is known to use.
    pub(crate) fn resolve(
        configs: &[&serde_json::Value],
        geometry: Option<&Geometry>,
        token_id: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        let number = |name: &str| {
            let found =
                configs.iter().find_map(|config| config.get(name).and_then(serde_json::Value::as_u64));
            found.and_then(|id| u32::try_from(id).ok())
        };
        let token = |name: &str| {
            let found =
                configs.iter().find_map(|config| config.get(name).and_then(serde_json::Value::as_str));
            found.and_then(&token_id)
        };
        let known = || geometry?.family().placeholder_names().iter().find_map(|name| token_id(name));
        let numbers = ["image_token_id", "image_token_index", "media_placeholder_token_id"];
        Self {
            image: numbers.into_iter().find_map(number).or_else(|| token("image_token")).or_else(known),
            video: ["video_token_id", "video_token_index"]
                .into_iter()
                .find_map(number)
                .or_else(|| token("video_token")),
            audio: ["audio_token_id", "audio_token_index"]
                .into_iter()
                .find_map(number)
                .or_else(|| token("audio_token")),
        }
    }
}

impl Expander {
    pub(crate) fn new(geometry: Option<Geometry>, ids: PlaceholderIds, tokeniser: &Tokeniser) -> Self {
        let slot = Slot::of(geometry.as_ref(), ids.image, tokeniser);
        let merges = geometry.as_ref().is_some_and(|geometry| geometry.family().merges_newlines());
        let newlines = if merges { Newlines::of(tokeniser) } else { None };
        Self { geometry, ids, slot, newlines }
    }

    pub(crate) const fn geometry(&self) -> Option<&Geometry> {
        self.geometry.as_ref()
    }

    pub(crate) const fn ids(&self) -> PlaceholderIds {
        self.ids
    }

    /// Tokenises a rendered prompt and finds where its images go.
    pub(crate) fn tokenise(
        &self,
        text: &str,
        parts: &[MediaPart],
        add_special_tokens: bool,
        tokeniser: &Tokeniser,
    ) -> Result<Slotted, TokenizeError> {
        let images = parts.iter().filter(|part| part.kind == MediaKind::Image).count();
        self.slot.find(text, images, add_special_tokens, tokeniser)
    }

    /// Places a request's media in its tokens.
    pub(crate) fn place(&self, slotted: Slotted, media: Media<'_>, tokeniser: &Tokeniser) -> Placed {
        let Slotted { tokens, slots } = slotted;
        if media.parts.is_empty() {
            return Placed { keyed: tokens.len(), located: tokens.len(), tokens, ..Placed::default() };
        }
        let images: Vec<usize> =
            media.parts.iter().filter(|part| part.kind == MediaKind::Image).map(|part| part.index).collect();
        let expansions = self.expansions(&images, media, tokeniser);
        let mut placed = Placed { tokens: Vec::with_capacity(tokens.len()), ..Placed::default() };
        placed.unpredicted = self.first_unsupported(media.parts, &tokens);
        let mut items = images.into_iter().zip(expansions);
        let mut missing = Missing { alone: true, ..Missing::default() };
        let mut at = 0;
        for (slot, (index, expansion)) in slots.into_iter().zip(items.by_ref()) {
            placed.copy(&tokens, at..slot.start);
            at = slot.end;
            match expansion {
                Ok(spelled) => placed.put(index, &spelled, media.is_named(index)),
                Err(reason) => {
                    missing.note(index, reason, slot.len());
                    placed.end_certainty(reason);
                    placed.copy(&tokens, slot);
                }
            }
        }
        placed.copy(&tokens, at..tokens.len());
        if let Some((_, unplaced)) = items.next() {
            missing.alone = false;
            (placed.certain, placed.lost) = (Some(0), Some(0));
            placed.fallback.get_or_insert(unplaced.err().unwrap_or(Fallback::MediaUnplaced));
        }
        missing.alone &= self.newlines.is_none() && placed.unpredicted.is_none();
        // A family may count its images depending on all of them.
        missing.alone &= self.geometry.is_none() || placed.media.is_empty();
        placed.uncounted = missing.counted_beside(placed.tokens.len());
        let placed = placed.finish();
        match self.newlines {
            Some(newlines) => newlines.merge(placed),
            None => placed,
        }
    }

    /// Returns where the first item of an unpredicted kind can stand, if there is any.
    fn first_unsupported(&self, parts: &[MediaPart], tokens: &[u32]) -> Option<usize> {
        let place = |part: &MediaPart| {
            let id = match part.kind {
                MediaKind::Image => return None,
                MediaKind::Video => self.ids.video,
                MediaKind::Audio => self.ids.audio,
                MediaKind::Embeds => None,
            };
            Some(id.and_then(|id| tokens.iter().position(|&token| token == id)).unwrap_or_default())
        };
        parts.iter().filter_map(place).min()
    }

    /// Expands each image, or says why not.
    fn expansions(
        &self,
        images: &[usize],
        media: Media<'_>,
        tokeniser: &Tokeniser,
    ) -> Vec<Result<Spelled, Fallback>> {
        let fail = |reason| images.iter().map(|_| Err(reason)).collect();
        if media.custom {
            return fail(Fallback::MediaKwargs);
        }
        let learned = |index: usize| media.learned.iter().find(|count| count.index == index);
        let plain = |index: usize| spelling::plain(learned(index)?.tokens, self.ids.image?);
        let Some(geometry) = &self.geometry else {
            let of_item = |index: &usize| plain(*index).ok_or(Fallback::MediaUnknownFamily);
            return images.iter().map(of_item).collect();
        };
        let size_of = |index: &usize| media.facts.iter().find(|fact| fact.index == *index)?.size;
        let sizes: Vec<Option<ImageSize>> = images.iter().map(size_of).collect();
        // Families that count depending on all images see a stand-in for an unknown size, and are cut there anyway.
        let all: Vec<ImageSize> = sizes.iter().map(|size| size.unwrap_or(ImageSize::new(1, 1))).collect();
        let expanded = geometry.expand(&all).into_iter().zip(sizes).zip(images);
        let spell = |((expansion, size), index): ((Result<_, _>, Option<_>), &usize)| {
            if size.is_none() {
                return plain(*index).ok_or(Fallback::MediaUnsized);
            }
            let expansion = expansion.map_err(|_| Fallback::MediaRefused)?;
            spelling::spell(&expansion, self.ids.image, tokeniser)
        };
        expanded.map(spell).collect()
    }
}

/// Images that stand unexpanded.
#[derive(Debug, Default)]
struct Missing {
    images: Vec<usize>,
    slot_tokens: usize,
    /// Whether their counts are all that is missing.
    alone: bool,
}

impl Missing {
    fn note(&mut self, index: usize, reason: Fallback, slot_tokens: usize) {
        self.alone &= matches!(reason, Fallback::MediaUnknownFamily | Fallback::MediaUnsized);
        self.images.push(index);
        self.slot_tokens += slot_tokens;
    }

    /// Says which they are, and how long the prompt is beside them; none unless they alone are missing.
    fn counted_beside(self, tokens: usize) -> Option<Uncounted> {
        let other_tokens = u32::try_from(tokens.saturating_sub(self.slot_tokens)).ok()?;
        (self.alone && !self.images.is_empty()).then_some(Uncounted { images: self.images, other_tokens })
    }
}

impl Placed {
    /// Copies tokens that stay as they are.
    fn copy(&mut self, tokens: &[u32], range: Range<usize>) {
        if let Some(place) = self.unpredicted.filter(|place| range.contains(place)) {
            let at = self.tokens.len() + place - range.start;
            self.certain.get_or_insert(at);
            self.lost.get_or_insert(at);
            self.fallback.get_or_insert(Fallback::MediaUnsupported);
        }
        self.tokens.extend_from_slice(tokens.get(range).unwrap_or_default());
    }

    fn put(&mut self, index: usize, item: &Spelled, named: bool) {
        let offset = self.tokens.len() + item.range.start;
        if !named {
            self.certain.get_or_insert(offset);
            self.fallback.get_or_insert(Fallback::MediaUnidentified);
        }
        self.tokens.extend_from_slice(&item.tokens);
        let (len, tokens, learned) = (item.range.len(), item.placeholders, item.learned);
        self.media.push(PlacedMedia { index, offset, len, tokens, learned });
    }

    /// Notes that nothing from here on is certain.
    fn end_certainty(&mut self, reason: Fallback) {
        self.certain.get_or_insert(self.tokens.len());
        self.lost.get_or_insert(self.tokens.len());
        self.fallback.get_or_insert(reason);
    }

    /// Drops the media whose places are not known.
    fn finish(mut self) -> Self {
        if self.unpredicted.is_some() {
            self.fallback.get_or_insert(Fallback::MediaUnsupported);
        }
        self.keyed = self.certain.unwrap_or(self.tokens.len());
        self.located = self.lost.unwrap_or(self.tokens.len());
        self.media.retain(|item| item.end() <= self.located);
        self
    }
}

impl Media<'_> {
    /// Tells whether the engine's name for an item is known.
    fn is_named(&self, index: usize) -> bool {
        self.facts.iter().any(|fact| fact.index == index && fact.id.is_some())
    }
}
