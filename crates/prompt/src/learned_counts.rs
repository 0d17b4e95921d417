//! What engines showed images to become, where no family tells.

mod recent;

use identity::MediaKey;
use media_geometry::ImageSize;

use recent::Recent;

/// How much is remembered, and how little is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedLimits {
    /// Images remembered; those not used for longest are forgotten.
    pub items_max: usize,
    /// Sizes remembered, and images whose size waits to be told a count.
    pub sizes_max: usize,
    /// Contradictions after which nothing more is believed of an image or a size while it is remembered.
    pub strikes_max: u8,
    /// The largest count that is believed, in tokens.
    pub tokens_max: u32,
}

impl Default for LearnedLimits {
    fn default() -> Self {
        Self { items_max: 65_536, sizes_max: 16_384, strikes_max: 3, tokens_max: 1 << 18 }
    }
}

/// An image whose count may be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pupil {
    /// The image, where its name is known.
    pub item: Option<MediaKey>,
    /// Its size, where it is known.
    pub size: Option<ImageSize>,
}

/// Counts of one model as one release of an engine has it, by image and by size; bounded.
///
/// A count is what an engine was seen to put in an image's place. One that is contradicted is dropped; what is
/// contradicted again and again depends on more than the image or its size, and is not believed any more.
#[derive(Clone, Debug)]
pub struct LearnedCounts {
    limits: LearnedLimits,
    items: Recent<MediaKey, Lesson>,
    sizes: Recent<ImageSize, Lesson>,
    /// The sizes of images that are on their way to an engine.
    expected: Recent<MediaKey, Option<ImageSize>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lesson {
    tokens: Option<u32>,
    strikes: u8,
}

impl Default for LearnedCounts {
    fn default() -> Self {
        Self::new(LearnedLimits::default())
    }
}

impl LearnedCounts {
    /// Starts with nothing learned.
    #[must_use]
    pub fn new(limits: LearnedLimits) -> Self {
        Self {
            limits,
            items: Recent::new(limits.items_max),
            sizes: Recent::new(limits.sizes_max),
            expected: Recent::new(limits.sizes_max),
        }
    }

    /// Returns what an image becomes, in placeholder tokens: as it did before, else as others of its size did.
    pub fn count(&mut self, pupil: Pupil) -> Option<u32> {
        if let Some((item, lesson)) = pupil.item.and_then(|item| Some((item, self.items.peek(item)?))) {
            if lesson.tokens.is_some() {
                self.items.get(item);
            }
            return lesson.tokens;
        }
        let lesson = self.sizes.peek(pupil.size?)?;
        if lesson.tokens.is_some() {
            self.sizes.get(pupil.size?);
        }
        lesson.tokens
    }

    /// Notes that an image without a count goes to an engine, which may tell of it.
    pub fn expect(&mut self, pupil: Pupil) {
        if let Some(item) = pupil.item {
            self.expected.put(item, pupil.size);
        }
    }

    /// Tells whether an image was expected.
    #[must_use]
    pub fn expects(&self, item: MediaKey) -> bool {
        self.expected.peek(item).is_some()
    }

    /// Takes in what an engine showed an image to become. Answers whether anything is known that was not before.
    pub fn tell(&mut self, pupil: Pupil, tokens: u32) -> bool {
        if tokens == 0 || tokens > self.limits.tokens_max {
            return false;
        }
        let strikes_max = self.limits.strikes_max;
        let size = pupil.size.or_else(|| self.expected.peek(pupil.item?).flatten());
        let mut news = false;
        if let Some(item) = pupil.item {
            news |= self.items.update(item, |lesson| lesson.told(tokens, strikes_max));
        }
        if let Some(size) = size {
            news |= self.sizes.update(size, |lesson| lesson.told(tokens, strikes_max));
        }
        news
    }

    /// Drops counts with which a prompt was predicted wrongly: one of them is not what the engine made of the image.
    pub fn contradict(&mut self, pupils: impl IntoIterator<Item = Pupil>) {
        for Pupil { item, size } in pupils {
            if let Some((item, lesson)) = item.and_then(|item| Some((item, self.items.peek(item)?))) {
                self.items.put(item, lesson.dropped());
            }
            if let Some((size, lesson)) = size.and_then(|size| Some((size, self.sizes.peek(size)?))) {
                self.sizes.put(size, lesson.dropped());
            }
        }
    }

    /// Counts what is remembered: images and sizes.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.items.len(), self.sizes.len())
    }

    /// Tells whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }
}

impl Lesson {
    /// Takes in a count; another than the one known is a contradiction.
    const fn told(self, tokens: u32, strikes_max: u8) -> Self {
        match self.tokens {
            _ if self.strikes >= strikes_max => Self { tokens: None, strikes: self.strikes },
            None => Self { tokens: Some(tokens), strikes: self.strikes },
            Some(known) if known == tokens => self,
            Some(_) => self.dropped(),
        }
    }

    const fn dropped(self) -> Self {
        Self { tokens: None, strikes: self.strikes.saturating_add(1) }
    }
}
