use std::borrow::Cow;
use std::ops::Range;

/// A run of tokens in an expansion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// The model's placeholder token, repeated.
    Placeholder {
        /// How often, at least once.
        count: u32,
    },
    /// One token of the vocabulary, named by its string, repeated.
    Named {
        /// The token's string.
        name: Cow<'static, str>,
        /// How often, at least once.
        count: u32,
    },
    /// One token of the vocabulary, by its id, repeated.
    Id {
        /// The token's id.
        id: u32,
        /// How often, at least once.
        count: u32,
    },
    /// Text between other tokens that is tokenised without adding any; added tokens in it are recognised.
    ///
    /// Its number of tokens depends on the vocabulary: `Expansion::tokens` and `Expansion::range` count it as one.
    Text {
        /// The text.
        text: Cow<'static, str>,
    },
}

impl Piece {
    /// Returns how many tokens the piece stands for, a text counting as one.
    #[must_use]
    pub const fn tokens(&self) -> u32 {
        match self {
            Self::Placeholder { count } | Self::Named { count, .. } | Self::Id { count, .. } => *count,
            Self::Text { .. } => 1,
        }
    }

    pub(crate) const fn named(name: &'static str) -> Self {
        Self::Named { name: Cow::Borrowed(name), count: 1 }
    }

    pub(crate) const fn text(text: &'static str) -> Self {
        Self::Text { text: Cow::Borrowed(text) }
    }
}

/// What an engine puts in place of one image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expansion {
    /// The tokens in order, run-length encoded; neighbours differ.
    pub pieces: Vec<Piece>,
    /// The item's placeholder range as the engine reports it, in tokens from the expansion's start. vLLM reports the
    /// whole expansion, structure included, for every family here.
    pub range: Range<u32>,
    /// How many placeholder tokens there are.
    pub placeholder_tokens: u32,
}

impl Expansion {
    /// Builds an expansion whose range is all of it.
    pub(crate) fn whole(pieces: Vec<Piece>) -> Self {
        let placeholder_tokens = pieces.iter().map(Piece::placeholders).sum();
        let tokens = pieces.iter().map(Piece::tokens).sum();
        Self { pieces, range: 0..tokens, placeholder_tokens }
    }

    /// Builds an expansion of placeholders only.
    pub(crate) fn placeholders(count: u32) -> Self {
        Self { pieces: vec![Piece::Placeholder { count }], range: 0..count, placeholder_tokens: count }
    }

    /// Returns the number of tokens, structure included, a text counting as one.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.pieces.iter().map(Piece::tokens).sum()
    }
}

impl Piece {
    const fn placeholders(&self) -> u32 {
        match self {
            Self::Placeholder { count } => *count,
            Self::Named { .. } | Self::Id { .. } | Self::Text { .. } => 0,
        }
    }
}
