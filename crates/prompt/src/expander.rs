//! Puts expansions in the place of placeholders, in order of appearance.

use media_geometry::{Expansion, Geometry, ImageSize, Piece, Refused, Target};

use crate::fallback::Fallback;
use crate::media_part::{MediaKind, MediaPart};
use crate::prepared::{MediaFact, PlacedMedia};
use crate::tokeniser::Tokeniser;

/// How a model's prompts take media.
#[derive(Debug)]
pub(crate) struct Expander {
    geometry: Option<Geometry>,
    ids: PlaceholderIds,
    /// The tokens that an image's expansion replaces.
    target: Vec<u32>,
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
}

/// An item's tokens, and where among them its reported range lies.
struct Expanded {
    tokens: Vec<u32>,
    range: std::ops::Range<usize>,
    placeholders: u32,
}

/// A request's media, as far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Media<'a> {
    pub(crate) parts: &'a [MediaPart],
    pub(crate) facts: &'a [MediaFact],
    /// Whether the request changes how media are processed.
    pub(crate) custom: bool,
}

impl PlaceholderIds {
    /// Resolves the ids in three steps: a non-negative number in `config.json`, a configured token string, and the
    /// strings that the family is known to use.
    pub(crate) fn resolve(
        configs: &[&serde_json::Value],
        geometry: Option<&Geometry>,
        tokeniser: &Tokeniser,
    ) -> Self {
        let number = |name: &str| {
            let found =
                configs.iter().find_map(|config| config.get(name).and_then(serde_json::Value::as_u64));
            found.and_then(|id| u32::try_from(id).ok())
        };
        let token = |name: &str| {
            let found =
                configs.iter().find_map(|config| config.get(name).and_then(serde_json::Value::as_str));
            found.and_then(|token| tokeniser.token_id(token))
        };
        let known =
            || geometry?.family().placeholder_names().iter().find_map(|name| tokeniser.token_id(name));
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
        let target = match geometry.as_ref().map(|geometry| geometry.family().target()) {
            Some(Target::Named(name)) => tokeniser.token_id(name).into_iter().collect(),
            Some(Target::Text(text)) => tokeniser.encode(text, false).unwrap_or_default(),
            Some(Target::Placeholder) | None => ids.image.into_iter().collect(),
        };
        Self { geometry, ids, target }
    }

    pub(crate) const fn geometry(&self) -> Option<&Geometry> {
        self.geometry.as_ref()
    }

    pub(crate) const fn ids(&self) -> PlaceholderIds {
        self.ids
    }

    /// Places a request's media in its tokens.
    pub(crate) fn place(&self, tokens: Vec<u32>, media: Media<'_>, tokeniser: &Tokeniser) -> Placed {
        if media.parts.is_empty() {
            return Placed { keyed: tokens.len(), tokens, ..Placed::default() };
        }
        let unsupported = media.parts.iter().filter(|part| part.kind != MediaKind::Image);
        let unsupported = unsupported.filter_map(|part| self.first_of(part.kind, &tokens)).min();
        let images: Vec<usize> =
            media.parts.iter().filter(|part| part.kind == MediaKind::Image).map(|part| part.index).collect();
        let expansions = self.expansions(&images, media, tokeniser);
        let mut placed = self.replace(&tokens, unsupported, images.into_iter().zip(expansions));
        if unsupported.is_some() {
            placed.fallback.get_or_insert(Fallback::MediaUnsupported);
        }
        placed
    }

    /// Returns where the first item of an unpredicted kind can stand.
    fn first_of(&self, kind: MediaKind, tokens: &[u32]) -> Option<usize> {
        let id = match kind {
            MediaKind::Image => self.ids.image,
            MediaKind::Video => self.ids.video,
            MediaKind::Audio => self.ids.audio,
            MediaKind::Embeds => None,
        };
        Some(id.and_then(|id| tokens.iter().position(|&token| token == id)).unwrap_or_default())
    }

    /// Expands each image, or says why not.
    fn expansions(
        &self,
        images: &[usize],
        media: Media<'_>,
        tokeniser: &Tokeniser,
    ) -> Vec<Result<Expanded, Fallback>> {
        let fail = |reason| images.iter().map(|_| Err(reason)).collect();
        if media.custom {
            return fail(Fallback::MediaKwargs);
        }
        let (Some(geometry), Some(id)) = (&self.geometry, self.ids.image) else {
            return fail(Fallback::MediaUnknownFamily);
        };
        let size_of = |index: &usize| {
            let fact = media.facts.iter().find(|fact| fact.index == *index);
            fact.and_then(|fact| fact.size)
        };
        let sizes: Vec<Option<ImageSize>> = images.iter().map(size_of).collect();
        // Families that count depending on all images see a stand-in for an unknown size, and are cut there anyway.
        let all: Vec<ImageSize> = sizes.iter().map(|size| size.unwrap_or(ImageSize::new(1, 1))).collect();
        let expansions = geometry.expand(&all).into_iter().zip(sizes);
        expansions
            .map(|(expansion, size)| {
                size.ok_or(Fallback::MediaUnsized)?;
                spell(&expansion, id, tokeniser)
            })
            .collect()
    }

    fn replace(
        &self,
        tokens: &[u32],
        unsupported: Option<usize>,
        mut items: impl Iterator<Item = (usize, Result<Expanded, Fallback>)>,
    ) -> Placed {
        let mut placed = Placed { tokens: Vec::with_capacity(tokens.len()), ..Placed::default() };
        let mut certain = None;
        let mut at = 0;
        while let Some(found) = self.next_target(tokens, at) {
            let Some((index, expanded)) = items.next() else { break };
            placed.copy(tokens, at..found, unsupported, &mut certain);
            at = found + self.target.len();
            match expanded {
                Ok(expanded) => placed.push(index, &expanded),
                Err(reason) => {
                    certain.get_or_insert(placed.tokens.len());
                    placed.fallback.get_or_insert(reason);
                    placed.tokens.extend_from_slice(&self.target);
                }
            }
        }
        placed.copy(tokens, at..tokens.len(), unsupported, &mut certain);
        if let Some((_, unplaced)) = items.next() {
            certain = Some(0);
            placed.fallback.get_or_insert(unplaced.err().unwrap_or(Fallback::MediaUnplaced));
        }
        placed.keyed = certain.unwrap_or(placed.tokens.len());
        placed.media.retain(|item| item.end() <= placed.keyed);
        placed
    }

    fn next_target(&self, tokens: &[u32], from: usize) -> Option<usize> {
        let first = self.target.first()?;
        let rest = tokens.get(from..)?;
        if self.target.len() == 1 {
            return rest.iter().position(|token| token == first).map(|at| from + at);
        }
        rest.windows(self.target.len()).position(|window| window == self.target).map(|at| from + at)
    }
}

impl Placed {
    /// Copies tokens that stay as they are, noting where the certain ones end.
    fn copy(
        &mut self,
        tokens: &[u32],
        range: std::ops::Range<usize>,
        unsupported: Option<usize>,
        certain: &mut Option<usize>,
    ) {
        if let Some(place) = unsupported.filter(|place| range.contains(place)) {
            certain.get_or_insert(self.tokens.len() + place - range.start);
        }
        self.tokens.extend_from_slice(tokens.get(range).unwrap_or_default());
    }

    fn push(&mut self, index: usize, item: &Expanded) {
        let offset = self.tokens.len() + item.range.start;
        self.tokens.extend_from_slice(&item.tokens);
        self.media.push(PlacedMedia { index, offset, len: item.range.len(), tokens: item.placeholders });
    }
}

/// Spells an expansion in the vocabulary's tokens.
fn spell(
    expansion: &Result<Expansion, Refused>,
    placeholder: u32,
    tokeniser: &Tokeniser,
) -> Result<Expanded, Fallback> {
    let expansion = expansion.as_ref().map_err(|_| Fallback::MediaRefused)?;
    let mut tokens = Vec::new();
    // Where each boundary of the range, counted with texts as one token, lies in the real tokens.
    let (mut counted, mut start, mut end) = (0_u32, 0, 0);
    for piece in &expansion.pieces {
        let before = tokens.len();
        match piece {
            Piece::Placeholder { count } => tokens.extend(std::iter::repeat_n(placeholder, size(*count))),
            Piece::Named { name, count } => {
                let id = tokeniser.token_id(name).ok_or(Fallback::MediaUnknownFamily)?;
                tokens.extend(std::iter::repeat_n(id, size(*count)));
            }
            Piece::Text { text } => {
                tokens.extend(tokeniser.encode(text, false).map_err(|_| Fallback::Tokenizer)?);
            }
        }
        let after = counted.saturating_add(piece.tokens());
        let inside = |bound: u32| if bound == after { tokens.len() } else { before + size(bound - counted) };
        if (counted..after).contains(&expansion.range.start) {
            start = inside(expansion.range.start);
        }
        if (counted..=after).contains(&expansion.range.end) {
            end = inside(expansion.range.end);
        }
        counted = after;
    }
    Ok(Expanded { tokens, range: start..end.max(start), placeholders: expansion.placeholder_tokens })
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
