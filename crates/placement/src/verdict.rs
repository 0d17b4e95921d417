//! Predictions judged by what the engine says it did.

use std::fmt;

/// What was predicted for the chosen holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens taken from the cache.
    pub cached_tokens: u32,
    /// Those among them that rest on earlier dispatches rather than on the index.
    pub pending_tokens: u32,
    /// Media tokens.
    pub media_tokens: u32,
    /// Tokens per block.
    pub block_size: u32,
}

/// What the engine's `usage` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens taken from the cache; none where details are absent.
    pub cached_tokens: Option<u32>,
    /// Media tokens, where told.
    pub media_tokens: Option<u32>,
}

/// Why a prediction cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// The request asked for `prompt_logprobs`, for which engines read no cache.
    PromptLogprobs,
    /// The engine truncated the prompt.
    Truncated,
    /// The request failed or was cancelled.
    Failed,
    /// The engine preempted the request and counted it again.
    Preempted,
    /// The engine tells no details.
    DetailsAbsent,
}

/// What is known about the holder and the request that may explain a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// A known reason not to compare.
    pub obstacle: Option<Obstacle>,
    /// How the holder's blocks were known, and whether they changed until the answer.
    pub index: IndexState,
    /// Traits of the model and the request.
    pub traits: Traits,
    /// Answers in a row in which this holder read no cache although some was predicted, this one not counted.
    pub barren_streak: u32,
}

/// How well the index stood for the holder between decision and answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexState {
    /// It agreed with the agent and removed nothing of the holder.
    #[default]
    Steady,
    /// Blocks of the holder were removed meanwhile.
    Removed,
    /// It was behind: repairing, aging, or not covering all the engine has.
    Behind,
}

/// What sets a request apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The model mixes kinds of attention.
    pub hybrid: bool,
    /// The request has a cache salt or an adapter.
    pub scoped: bool,
}

/// Answers in a row without a cache read after which the cache counts as off.
const BARREN_STREAK: u32 = 4;

/// The class of a wrong prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Text became other tokens: tokenizer or template differ.
    Template,
    /// Media became another number of tokens.
    MediaCount,
    /// The engine counts in blocks of another size.
    BlockSize,
    /// Salt or adapter enter the engine's keys otherwise.
    Scope,
    /// The index did not say what the engine had.
    StaleHolder,
    /// Blocks were evicted between decision and execution.
    Evicted,
    /// A model of mixed attention reuses less than full attention shows.
    Hybrid,
    /// The engine reads no cache at all.
    CacheOff,
    /// None of these.
    Unknown,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 9] = [
        Self::Template,
        Self::MediaCount,
        Self::BlockSize,
        Self::Scope,
        Self::StaleHolder,
        Self::Evicted,
        Self::Hybrid,
        Self::CacheOff,
        Self::Unknown,
    ];

    /// Returns the class's name in answers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::MediaCount => "media-count",
            Self::BlockSize => "block-size",
            Self::Scope => "salt-lora",
            Self::StaleHolder => "stale-holder",
            Self::Evicted => "evicted",
            Self::Hybrid => "hybrid-attention",
            Self::CacheOff => "prefix-cache-off",
            Self::Unknown => "unknown",
        }
    }

    /// Tells whether the prompt itself was other than predicted, not only what was cached of it.
    #[must_use]
    pub const fn is_of_prompt(self) -> bool {
        matches!(self, Self::Template | Self::MediaCount)
    }

    /// Tells whether the class speaks of a lasting disagreement rather than of a moment.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        !matches!(self, Self::StaleHolder | Self::Evicted)
    }
}

/// What came of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Prompt and cached tokens were as predicted.
    Match,
    /// It cannot be judged.
    NotComparable(Obstacle),
    /// It was wrong.
    Mismatch(Class),
}

impl Verdict {
    /// Returns the verdict's name: `match`, `not-comparable` or the class.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::NotComparable(_) => "not-comparable",
            Self::Mismatch(class) => class.as_str(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Compares a prediction with what the engine did: first whether that can be done, then the prompt, then the cache.
#[must_use]
pub fn judge(predicted: &Predicted, actual: &Actual, circumstances: &Circumstances) -> Verdict {
    if let Some(obstacle) = circumstances.obstacle {
        return Verdict::NotComparable(obstacle);
    }
    if actual.prompt_tokens != predicted.prompt_tokens {
        return Verdict::Mismatch(prompt_class(predicted, actual));
    }
    match actual.cached_tokens {
        None => Verdict::NotComparable(Obstacle::DetailsAbsent),
        Some(cached) if cached == predicted.cached_tokens => Verdict::Match,
        Some(cached) => Verdict::Mismatch(cache_class(predicted, cached, circumstances)),
    }
}

fn prompt_class(predicted: &Predicted, actual: &Actual) -> Class {
    match actual.media_tokens {
        Some(media) if media != predicted.media_tokens => Class::MediaCount,
        None if predicted.media_tokens > 0 => Class::MediaCount,
        Some(_) | None => Class::Template,
    }
}

fn cache_class(predicted: &Predicted, cached: u32, circumstances: &Circumstances) -> Class {
    let partial_block = !cached.is_multiple_of(predicted.block_size.max(1));
    let barren = cached == 0 && circumstances.barren_streak + 1 >= BARREN_STREAK;
    let on_index = predicted.cached_tokens.saturating_sub(predicted.pending_tokens);
    if partial_block {
        Class::BlockSize
    } else if cached > predicted.cached_tokens {
        Class::StaleHolder
    } else if circumstances.traits.hybrid {
        Class::Hybrid
    } else if barren {
        Class::CacheOff
    } else if circumstances.index == IndexState::Removed {
        Class::Evicted
    } else if circumstances.index == IndexState::Behind || cached >= on_index {
        Class::StaleHolder
    } else if circumstances.traits.scoped && cached == 0 {
        Class::Scope
    } else {
        Class::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREDICTED: Predicted = Predicted {
        prompt_tokens: 200,
        cached_tokens: 96,
        pending_tokens: 32,
        media_tokens: 50,
        block_size: 16,
    };

    fn check(
        prompt: u32,
        cached: Option<u32>,
        media: Option<u32>,
        circumstances: Circumstances,
        expected: &str,
    ) {
        let actual = Actual { prompt_tokens: prompt, cached_tokens: cached, media_tokens: media };
        let verdict = judge(&PREDICTED, &actual, &circumstances);
        assert_eq!(verdict.as_str(), expected, "{actual:?} {circumstances:?}");
    }

    #[test]
    fn each_class_is_found() {
        let plain = Circumstances::default();
        let index = |index| Circumstances { index, ..plain };
        let traits = |hybrid, scoped| Circumstances { traits: Traits { hybrid, scoped }, ..plain };
        check(200, Some(96), Some(50), plain, "match");
        check(200, Some(96), None, plain, "match");
        check(200, None, Some(50), plain, "not-comparable");
        let obstacle = Circumstances { obstacle: Some(Obstacle::PromptLogprobs), ..plain };
        check(1, Some(0), Some(50), obstacle, "not-comparable");
        check(210, Some(96), Some(60), plain, "media-count");
        check(210, None, None, plain, "media-count");
        check(210, Some(96), Some(50), plain, "template");
        check(200, Some(112), None, plain, "stale-holder");
        check(200, Some(64), None, plain, "stale-holder");
        check(200, Some(100), None, plain, "block-size");
        check(200, Some(48), None, plain, "unknown");
        check(200, Some(48), None, index(IndexState::Removed), "evicted");
        check(200, Some(48), None, index(IndexState::Behind), "stale-holder");
        check(200, Some(0), None, traits(false, true), "salt-lora");
        check(200, Some(0), None, traits(true, true), "hybrid-attention");
        check(200, Some(0), None, Circumstances { barren_streak: 3, ..plain }, "prefix-cache-off");
        check(200, Some(0), None, Circumstances { barren_streak: 2, ..plain }, "unknown");
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<&str> = Class::ALL.iter().map(|class| class.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Class::ALL.len());
    }
}
