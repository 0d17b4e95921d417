//! The words that replies are made of: ordinary tokens of the model, each of which reads back as itself.

use prompt::Model;

const WORDS_MAX: usize = 4096;

/// A text to stand before a word, because some decoders drop the space at the beginning.
const ANCHOR: &str = "a";

/// Words by number, and the token that ends a reply.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    words: Vec<(u32, Box<str>)>,
    end: Option<u32>,
}

impl Vocabulary {
    /// Collects up to 4,096 tokens that are a space and letters, and that their own text tokenises to.
    /// A vocabulary without any falls back to whatever tokens have text.
    #[must_use]
    pub(crate) fn new(model: &Model) -> Self {
        let end = model.facts().eos_token_ids.first().copied();
        let ids = || 0..u32::try_from(model.vocabulary_size()).unwrap_or(u32::MAX);
        let anchor = model.tokenize(ANCHOR, false).unwrap_or_default();
        let after_anchor = |id: u32| [anchor.as_slice(), &[id]].concat();
        let word = |id: u32| {
            let text = model.detokenize(&after_anchor(id), false).ok()?;
            let word = text.strip_prefix(ANCHOR).filter(|word| is_word(word))?;
            let reads_back = model.tokenize(&text, false).is_ok_and(|tokens| tokens == after_anchor(id));
            reads_back.then(|| (id, word.into()))
        };
        let words: Vec<_> = ids().filter_map(word).take(WORDS_MAX).collect();
        if !words.is_empty() {
            return Self::from_words(words, end);
        }
        let any = |id: u32| Some((id, model.detokenize(&[id], true).ok()?.into_boxed_str()));
        Self::from_words(ids().filter_map(any).filter(|(_, text)| !text.is_empty()).take(WORDS_MAX), end)
    }

    /// Takes words as they are; of none, token 0 without text is the only one.
    #[must_use]
    pub(crate) fn from_words(words: impl IntoIterator<Item = (u32, Box<str>)>, end: Option<u32>) -> Self {
        let mut words: Vec<_> = words.into_iter().collect();
        if words.is_empty() {
            words.push((0, "".into()));
        }
        Self { words, end }
    }

    /// Returns the token that ends a reply, if the model has one.
    #[must_use]
    pub(crate) const fn end(&self) -> Option<u32> {
        self.end
    }

    /// Picks a word by any number.
    #[must_use]
    pub(crate) fn word(&self, number: u64) -> (u32, &str) {
        let index = number % self.words.len() as u64;
        let word = usize::try_from(index).ok().and_then(|index| self.words.get(index));
        word.map_or((0, ""), |(id, text)| (*id, text))
    }
}

fn is_word(text: &str) -> bool {
    text.strip_prefix(' ').is_some_and(|rest| rest.len() > 1 && rest.chars().all(|c| c.is_ascii_lowercase()))
}
