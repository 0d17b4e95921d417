//! Splits a text at added tokens, where that is provably what the tokeniser does first.

use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{AddedToken, Tokenizer};

/// The added tokens at which texts split.
///
/// `tokenizers` first splits a text at the added tokens that match raw text, longest first, and then normalises and
/// tokenises each piece by itself. So pieces are independent, unless an added token reaches into its neighbours
/// (`lstrip`, `rstrip`, `single_word`) or the pre-tokeniser treats the text's beginning specially.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    matcher: AhoCorasick,
    ids: Vec<u32>,
}

impl Segments {
    /// Builds the splitter; nothing where segments would depend on each other.
    pub(super) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let added = tokenizer.get_added_tokens_decoder();
        let reaches_out = |token: &AddedToken| token.lstrip || token.rstrip || token.single_word;
        if added.values().any(reaches_out) || tokenizer.get_encode_special_tokens() {
            return None;
        }
        if tokenizer.get_pre_tokenizer().is_some_and(depends_on_position) {
            return None;
        }
        let mut tokens: Vec<(&str, u32)> = added
            .iter()
            .filter(|(_, token)| !token.normalized && !token.content.is_empty())
            .map(|(id, token)| (token.content.as_str(), *id))
            .collect();
        if tokens.is_empty() {
            return None;
        }
        tokens.sort_unstable();
        let patterns = tokens.iter().map(|(content, _)| content);
        let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns).ok()?;
        Some(Self { matcher, ids: tokens.into_iter().map(|(_, id)| id).collect() })
    }

    /// Calls back with each segment and the added token that ends it; the last segment has none.
    pub(super) fn split<E>(
        &self,
        text: &str,
        mut sink: impl FnMut(&str, Option<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = 0;
        for found in self.matcher.find_iter(text) {
            let segment = text.get(at..found.start()).unwrap_or_default();
            sink(segment, self.ids.get(found.pattern().as_usize()).copied())?;
            at = found.end();
        }
        sink(text.get(at..).unwrap_or_default(), None)
    }
}

/// Tells whether a pre-tokeniser looks at where in the text its piece stands.
fn depends_on_position(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    match pre_tokenizer {
        PreTokenizerWrapper::Metaspace(metaspace) => metaspace.get_prepend_scheme() == PrependScheme::First,
        PreTokenizerWrapper::Sequence(sequence) => sequence.as_ref().iter().any(depends_on_position),
        PreTokenizerWrapper::BertPreTokenizer(_)
        | PreTokenizerWrapper::ByteLevel(_)
        | PreTokenizerWrapper::Delimiter(_)
        | PreTokenizerWrapper::Whitespace(_)
        | PreTokenizerWrapper::Split(_)
        | PreTokenizerWrapper::Punctuation(_)
        | PreTokenizerWrapper::WhitespaceSplit(_)
        | PreTokenizerWrapper::Digits(_)
        | PreTokenizerWrapper::UnicodeScripts(_)
        | PreTokenizerWrapper::FixedLength(_) => false,
    }
}
