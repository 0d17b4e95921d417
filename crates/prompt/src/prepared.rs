//! What is known of a request's media beforehand, and of its prompt afterwards.

use identity::{KeyScope, MediaId, MediaKey, MediaSpan, block_keys};
use media_geometry::ImageSize;
use placement::{Confidence, KeyChain, MediaRouting, RoutingRequest};

use crate::expander::Placed;
use crate::fallback::Fallback;
use crate::nameless::Nameless;
use crate::template::Clock;

/// What is known of one of a request's media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaFact {
    /// Index among the request's media.
    pub index: usize,
    /// The name by which the engine will know the item; none while it isn't known: then nothing past it has a key.
    pub id: Option<MediaId>,
    /// An image's size after EXIF orientation, where it is known.
    pub size: Option<ImageSize>,
}

/// Where an item lies in a prompt, as the engine reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedMedia {
    /// Index among the request's media.
    pub index: usize,
    /// Index of the range's first token.
    pub offset: usize,
    /// Length of the range in tokens.
    pub len: usize,
    /// How many placeholder tokens there are in the range: what usage counts.
    pub tokens: u32,
    /// Whether that was learned from an engine rather than computed from the image's size.
    pub learned: bool,
}

/// What an engine was seen to make of one of a request's images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedCount {
    /// Index among the request's media.
    pub index: usize,
    /// Placeholder tokens in its place, and nothing else.
    pub tokens: u32,
}

/// Images without a count in a prompt of which everything else is certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// Their indices among the request's media.
    pub images: Vec<usize>,
    /// The prompt's tokens beside theirs: what an engine counts beyond them, the images became.
    pub other_tokens: u32,
}

impl PlacedMedia {
    /// Index one past the range's last token.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Returns the range as block keys take it, under a name.
    #[must_use]
    pub fn span(&self, key: MediaKey) -> MediaSpan {
        MediaSpan { key, start: narrow(self.offset), len: narrow(self.len) }
    }
}

/// What keys are made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrepareOptions<'a> {
    /// The distinct block sizes among the candidate pools, in tokens.
    pub block_sizes: &'a [u32],
    /// What separates this request's cache from others'. An empty salt is replaced by the request's own.
    pub scope: KeyScope<'a>,
    /// The workers' wall clock, for templates that print the date.
    pub clock: Clock,
    /// The longest context among the candidates, in tokens, where all have one: longer prompts are told apart from
    /// others, and not tokenised to their end.
    pub context_tokens_max: Option<u32>,
    /// Counts for images that the model's family does not tell: it has none, or their size is unknown.
    pub learned: &'a [LearnedCount],
}

/// A prompt as the engine will have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The tokens, expansions included. What follows `keyed_tokens` is a guess.
    pub tokens: Vec<u32>,
    /// How many tokens from the start are certain.
    pub keyed_tokens: usize,
    /// The media among the certain tokens, in order of appearance.
    pub media: Vec<PlacedMedia>,
    /// The media after those whose place is known all the same: only names are missing.
    pub beyond: Vec<PlacedMedia>,
    /// Why the certain tokens end before the prompt does.
    pub fallback: Option<Fallback>,
    /// Images whose counts are all that is missing; none where none is, or more.
    pub uncounted: Option<Uncounted>,
    /// What went wrong in the router itself, for operators: quotes no prompt.
    pub failure: Option<String>,
}

/// A request ready to be routed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// What placement needs.
    pub routing: RoutingRequest,
    /// The tokens, expansions included. What follows `keyed_tokens` is a guess.
    pub tokens: Vec<u32>,
    /// How many tokens from the start are certain: only these have keys.
    pub keyed_tokens: usize,
    /// The media among the certain tokens, in order of appearance.
    pub media: Vec<PlacedMedia>,
    /// The media after those whose place is known all the same: only names are missing.
    pub beyond: Vec<PlacedMedia>,
    /// What the missing names can be told by.
    pub nameless: Option<Nameless>,
    /// Why the certain tokens end before the prompt does.
    pub fallback: Option<Fallback>,
    /// Images whose counts are all that is missing; none where none is, or more.
    pub uncounted: Option<Uncounted>,
    /// What went wrong in the router itself, for operators: quotes no prompt.
    pub failure: Option<String>,
    /// How the prompt is known.
    pub confidence: Confidence,
}

impl From<Placed> for Prompt {
    fn from(placed: Placed) -> Self {
        let Placed { tokens, keyed, media, fallback, uncounted, .. } = placed;
        let (media, beyond) = media.into_iter().partition(|item| item.end() <= keyed);
        Self { tokens, keyed_tokens: keyed, media, beyond, fallback, uncounted, failure: None }
    }
}

impl Prompt {
    /// Makes a prompt of which nothing is certain but about how long it is.
    pub(crate) fn guess(tokens: usize, fallback: Fallback) -> Self {
        // Guessed tokens are never read; their number is.
        Self { tokens: vec![0; tokens], keyed_tokens: 0, fallback: Some(fallback), ..Self::default() }
    }

    /// Says how the prompt is known, whatever kind of attention reads it.
    fn confidence(&self) -> Confidence {
        if self.fallback.is_some() {
            Confidence::Unknown
        } else if self.media.iter().any(|item| item.learned) {
            Confidence::Learned
        } else {
            Confidence::Exact
        }
    }

    /// Names the prompt's blocks.
    #[must_use]
    pub fn with_keys(self, facts: &[MediaFact], block_sizes: &[u32], scope: KeyScope<'_>) -> Prepared {
        let key = |item: &PlacedMedia| {
            let fact = facts.iter().find(|fact| fact.index == item.index)?;
            fact.id.as_ref().map(MediaId::key)
        };
        let span = |item: &PlacedMedia| key(item).map(|key| item.span(key));
        let spans: Vec<MediaSpan> = self.media.iter().filter_map(span).collect();
        let certain = self.tokens.get(..self.keyed_tokens).unwrap_or(&self.tokens);
        let root = scope.root();
        let chain =
            |&block_size: &u32| KeyChain { block_size, keys: block_keys(root, certain, &spans, block_size) };
        let chains = block_sizes.iter().map(chain).collect();
        let located = || self.media.iter().chain(&self.beyond);
        let named = |item: &PlacedMedia| key(item).map(|key| (key, item.tokens));
        let mut image_multiset: Vec<_> = located().filter_map(named).collect();
        image_multiset.sort_unstable();
        let total_image_tokens = located().map(|item| item.tokens).sum();
        let mm_routing_info = MediaRouting { image_multiset, total_image_tokens };
        let routing = RoutingRequest { chains, prompt_tokens: narrow(self.tokens.len()), mm_routing_info };
        let unnamed = self.fallback == Some(Fallback::MediaUnidentified) && !self.beyond.is_empty();
        let nameless = unnamed
            .then(|| Nameless::new(root, &self.tokens, located().map(|item| (*item, key(item))).collect()));
        let confidence = self.confidence();
        let Self { tokens, keyed_tokens, media, beyond, fallback, uncounted, failure } = self;
        Prepared {
            routing,
            tokens,
            keyed_tokens,
            media,
            beyond,
            nameless,
            fallback,
            uncounted,
            failure,
            confidence,
        }
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
