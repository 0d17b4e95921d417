//! Generated tokens: the same prompt and seed always give the same words, and a reply ends as requests ask.

use std::sync::Arc;

use crate::vocabulary::Vocabulary;

/// When a reply ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyLimits {
    /// Tokens after which it is cut; at least 1.
    pub(crate) tokens_max: u32,
    /// Tokens before which only `tokens_max` ends it.
    pub(crate) tokens_min: u32,
    /// Its natural length, the end token included; `None` goes on until `tokens_max`.
    pub(crate) natural: Option<u32>,
    /// Tokens that end it; they are produced, but not part of its text.
    pub(crate) stop_tokens: Vec<u32>,
    /// Strings that end it.
    pub(crate) stop: Vec<String>,
    /// Whether the string that ended it is part of its text.
    pub(crate) include_stop: bool,
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model chose to end.
    Stop,
    /// A token of the request's `stop_token_ids`.
    StopToken(u32),
    /// A string of the request's `stop`.
    StopText(String),
    /// The token limit.
    Length,
}

impl Finish {
    /// Returns the API's `finish_reason`.
    #[must_use]
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Stop | Self::StopToken(_) | Self::StopText(_) => "stop",
            Self::Length => "length",
        }
    }
}

/// One generated token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emission {
    /// Its id.
    pub(crate) token: u32,
    /// Text that it makes certain; may be empty, or longer than the token while stop strings are looked for.
    pub(crate) text: String,
    /// Set on the last token.
    pub(crate) finish: Option<Finish>,
}

/// The source of one sequence's tokens.
#[derive(Debug)]
pub(crate) struct Reply {
    vocabulary: Arc<Vocabulary>,
    seed: u64,
    limits: ReplyLimits,
    produced: u32,
    /// Text that might be the beginning of a stop string.
    held: String,
}

impl Reply {
    /// Creates a reply. Equal seeds give equal tokens.
    #[must_use]
    pub(crate) const fn new(vocabulary: Arc<Vocabulary>, seed: u64, limits: ReplyLimits) -> Self {
        Self { vocabulary, seed, limits, produced: 0, held: String::new() }
    }

    /// Produces the next token; not to be called after one with `finish`.
    pub(crate) fn next_token(&mut self) -> Emission {
        self.produced += 1;
        let may_stop = self.produced > self.limits.tokens_min;
        let ends = may_stop && self.limits.natural.is_some_and(|natural| self.produced >= natural);
        let vocabulary = Arc::clone(&self.vocabulary);
        let (token, word) = match vocabulary.end().filter(|_| ends) {
            Some(end) => (end, ""),
            None => vocabulary.word(mix(self.seed.wrapping_add(u64::from(self.produced)))),
        };
        let stopped = if ends {
            Some(Finish::Stop)
        } else {
            self.limits.stop_tokens.contains(&token).then_some(Finish::StopToken(token)).filter(|_| may_stop)
        };
        let cut = (self.produced >= self.limits.tokens_max).then_some(Finish::Length);
        let shown = if stopped.is_some() { "" } else { word };
        let (text, found) = self.certain_text(shown, may_stop);
        let last = found.is_none() && (stopped.is_some() || cut.is_some());
        let text = if last { text + &std::mem::take(&mut self.held) } else { text };
        Emission { token, text, finish: found.or(stopped).or(cut) }
    }

    /// Appends a word to the text and returns what no stop string can take back, or ends at one.
    fn certain_text(&mut self, word: &str, may_stop: bool) -> (String, Option<Finish>) {
        let Some(longest) = self.limits.stop.iter().map(String::len).max() else {
            return (word.to_owned(), None);
        };
        self.held.push_str(word);
        let found =
            self.limits.stop.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at, stop)));
        if may_stop && let Some((at, stop)) = found.min_by_key(|&(at, _)| at) {
            let end = if self.limits.include_stop { at + stop.len() } else { at };
            let finish = Finish::StopText(stop.clone());
            self.held.truncate(end);
            return (std::mem::take(&mut self.held), Some(finish));
        }
        let certain = (self.held.len() + 1).saturating_sub(longest);
        let certain = self.held.floor_char_boundary(certain.min(self.held.len()));
        (self.held.drain(..certain).collect(), None)
    }
}

/// A bijective mixer (splitmix64's finaliser).
const fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(limits: ReplyLimits) -> Vec<Emission> {
        let words = [(1, " red"), (2, " green"), (3, " blue"), (4, " é")];
        let vocabulary = Arc::new(Vocabulary::from_words(words.map(|(id, text)| (id, text.into())), Some(9)));
        let mut reply = Reply::new(vocabulary, 7, limits);
        let mut all = Vec::new();
        while all.last().is_none_or(|last: &Emission| last.finish.is_none()) {
            all.push(reply.next_token());
        }
        all
    }

    fn text(emissions: &[Emission]) -> String {
        emissions.iter().map(|emission| emission.text.as_str()).collect()
    }

    fn limits(tokens_max: u32) -> ReplyLimits {
        ReplyLimits { tokens_max, ..ReplyLimits::default() }
    }

    #[test]
    fn equal_seeds_give_equal_replies_and_longer_ones_continue_shorter_ones() {
        let long = replies(limits(50));
        let short = replies(limits(5));
        assert_eq!(short.len(), 5);
        assert_eq!(short.last().unwrap().finish, Some(Finish::Length));
        assert!(long.iter().zip(&short).all(|(a, b)| a.token == b.token));
        assert!(long.iter().any(|emission| emission.token != long[0].token));
    }

    #[test]
    fn a_reply_ends_by_itself_at_its_natural_length_but_not_before_the_minimum() {
        let natural =
            |natural, tokens_min| replies(ReplyLimits { natural: Some(natural), tokens_min, ..limits(50) });
        let ended = natural(8, 0);
        assert_eq!((ended.len(), ended[7].token, ended[7].text.as_str()), (8, 9, ""));
        assert_eq!(ended[7].finish, Some(Finish::Stop));
        assert_eq!(natural(8, 20).len(), 21);
    }

    #[test]
    fn a_stop_string_is_found_across_tokens_and_never_shown() {
        let whole = text(&replies(limits(40)));
        let middle = whole.char_indices().map(|(i, _)| i).nth(60).unwrap();
        let stop: String = whole[middle..].chars().take(9).collect();
        let at = whole.find(&stop).unwrap();
        let check = |include_stop, end| {
            let cut =
                replies(ReplyLimits { stop: vec!["never".into(), stop.clone()], include_stop, ..limits(40) });
            assert_eq!(text(&cut), whole[..end]);
            assert_eq!(cut.last().unwrap().finish, Some(Finish::StopText(stop.clone())));
        };
        check(false, at);
        check(true, at + stop.len());
        let unmatched = replies(ReplyLimits { stop: vec!["nothing like it".into()], ..limits(40) });
        assert_eq!(text(&unmatched), whole);
    }

    #[test]
    fn a_stop_token_is_produced_but_not_shown() {
        let first = replies(limits(1))[0].token;
        let stopped = replies(ReplyLimits { stop_tokens: vec![first], ..limits(40) });
        assert_eq!(
            stopped,
            [Emission { token: first, text: String::new(), finish: Some(Finish::StopToken(first)) }]
        );
    }
}
