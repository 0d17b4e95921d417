//! Finds where in a prompt its images go.

use std::borrow::Cow;
use std::ops::Range;

use media_geometry::{Geometry, Target};

use crate::tokeniser::{Tokeniser, TokenizeError};

/// What an image's expansion replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// One token.
    Token(u32),
    /// Text, which is cut out before the rest is tokenised.
    Text(&'static str),
    /// Text with the image's number, from 1, between two parts.
    Numbered(&'static str, &'static str),
    /// Nothing that is known.
    Unknown,
}

/// A prompt's tokens, and which of them each image replaces: at most as many as there are images.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slotted {
    pub(crate) tokens: Vec<u32>,
    pub(crate) slots: Vec<Range<usize>>,
}

impl Slot {
    pub(super) fn of(geometry: Option<&Geometry>, placeholder: Option<u32>, tokeniser: &Tokeniser) -> Self {
        let token = |id: Option<u32>| id.map_or(Self::Unknown, Self::Token);
        match geometry.map(|geometry| geometry.family().target()) {
            Some(Target::Placeholder) | None => token(placeholder),
            Some(Target::Named(name)) => token(tokeniser.token_id(name)),
            Some(Target::Text(text)) => tokeniser.added_token_id(text).map_or(Self::Text(text), Self::Token),
            Some(Target::Numbered(before, after)) => Self::Numbered(before, after),
        }
    }

    /// Tokenises a prompt and finds the slots of its images.
    pub(super) fn find(
        self,
        text: &str,
        images: usize,
        add_special_tokens: bool,
        tokeniser: &Tokeniser,
    ) -> Result<Slotted, TokenizeError> {
        match self {
            Self::Text(_) | Self::Numbered(..) if images > 0 => {
                self.cut(text, images, add_special_tokens, tokeniser)
            }
            Self::Token(id) => {
                let tokens = tokeniser.encode(text, add_special_tokens)?;
                let found = tokens.iter().enumerate().filter(|(_, token)| **token == id).take(images);
                let slots = found.map(|(at, _)| at..at + 1).collect();
                Ok(Slotted { tokens, slots })
            }
            Self::Text(_) | Self::Numbered(..) | Self::Unknown => {
                Ok(Slotted { tokens: tokeniser.encode(text, add_special_tokens)?, slots: Vec::new() })
            }
        }
    }

    /// Tokenises what stands between the slots by itself: expansions begin and end with added tokens, which split it.
    fn cut(
        self,
        text: &str,
        images: usize,
        add_special_tokens: bool,
        tokeniser: &Tokeniser,
    ) -> Result<Slotted, TokenizeError> {
        let (mut tokens, mut slots) = (Vec::with_capacity(text.len() / 3), Vec::with_capacity(images));
        let mut rest = text;
        for number in 1..=images {
            let Some((before, after)) = rest.split_once(&*self.spelling(number)) else { break };
            if !before.is_empty() {
                tokens.extend(tokeniser.encode(before, add_special_tokens && slots.is_empty())?);
            }
            slots.push(tokens.len()..tokens.len());
            rest = after;
        }
        if !rest.is_empty() {
            tokens.extend(tokeniser.encode(rest, add_special_tokens && slots.is_empty())?);
        }
        Ok(Slotted { tokens, slots })
    }

    fn spelling(self, number: usize) -> Cow<'static, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Numbered(before, after) => Cow::Owned(format!("{before}{number}{after}")),
            Self::Token(_) | Self::Unknown => Cow::Borrowed(""),
        }
    }
}
