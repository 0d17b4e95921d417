//! What chat and completion requests have in common, read the way engines read it.

use crate::error::Error;
use crate::json::{Json, Kind};

/// The parameters of a request that routing reads; everything else passes through unread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// The model's name.
    pub model: Option<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Whether a stream is to end with usage (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The most tokens to generate (`max_completion_tokens`, else `max_tokens`).
    pub max_tokens: Option<u32>,
    /// How many answers are wanted; 1 by default.
    pub answers: u32,
    /// The end user, as the client names them.
    pub user: Option<String>,
    /// The request's priority; lower is earlier, 0 by default.
    pub priority: i64,
    /// What separates this request's cache from others'; never empty.
    pub cache_salt: Option<String>,
    /// The session the request belongs to (`session_id`).
    pub session_id: Option<String>,
    /// How the prompt is to be tokenised and read from cache.
    pub reading: Reading,
}

/// Parameters that change how an engine reads a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether the tokeniser adds its special tokens; absent: false for chat, true for completions.
    pub add_special_tokens: Option<bool>,
    /// How many prompt tokens to keep (`truncate_prompt_tokens`), −1 for what fits.
    pub truncate_prompt_tokens: Option<i64>,
    /// Whether the engine computes the whole prompt even where it is cached (`prompt_logprobs`, `echo` with logprobs).
    pub skips_prefix_cache: bool,
    /// Whether the prompt's token ids are to be answered (`return_token_ids`).
    pub return_token_ids: bool,
}

impl Params {
    /// Tells whether the engine's count of cached tokens can be compared with a prediction.
    #[must_use]
    pub const fn comparable(&self) -> bool {
        !self.reading.skips_prefix_cache && self.reading.truncate_prompt_tokens.is_none()
    }

    pub(crate) fn new() -> Self {
        Self { answers: 1, ..Self::default() }
    }

    /// Reads a member of the body; false if it is none of these.
    pub(crate) fn read(&mut self, name: &str, value: Json<'_>) -> Result<bool, Error> {
        match name {
            "model" => self.model = text(name, value)?,
            "stream" => self.stream = flag(name, value)?.unwrap_or_default(),
            "stream_options" => self.include_usage = include_usage(name, value)?,
            "max_completion_tokens" => self.max_tokens = count(name, value)?.or(self.max_tokens),
            "max_tokens" => self.max_tokens = self.max_tokens.or(count(name, value)?),
            "n" => self.answers = count(name, value)?.unwrap_or(1),
            "user" => self.user = text(name, value)?,
            "priority" => self.priority = integer(name, value)?.unwrap_or_default(),
            "session_id" => self.session_id = text(name, value)?,
            "cache_salt" => {
                self.cache_salt = text(name, value)?;
                if self.cache_salt.as_deref() == Some("") {
                    return Err(Error::refused(name, "must be a non-empty string"));
                }
            }
            _ => return self.reading.read(name, value),
        }
        Ok(true)
    }
}

impl Reading {
    fn read(&mut self, name: &str, value: Json<'_>) -> Result<bool, Error> {
        match name {
            "add_special_tokens" => self.add_special_tokens = flag(name, value)?,
            "truncate_prompt_tokens" => self.truncate_prompt_tokens = integer(name, value)?,
            "prompt_logprobs" => self.skips_prefix_cache |= !value.is_null(),
            "return_token_ids" => self.return_token_ids = flag(name, value)?.unwrap_or_default(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn include_usage(name: &str, value: Json<'_>) -> Result<bool, Error> {
    match value.kind() {
        Kind::Null => Ok(false),
        Kind::Object => match value.get("include_usage") {
            Some(given) => Ok(flag("stream_options.include_usage", given)?.unwrap_or_default()),
            None => Ok(false),
        },
        Kind::Bool(_) | Kind::Number | Kind::Plain | Kind::Escaped | Kind::Array => {
            Err(Error::wrong(name, "an object"))
        }
    }
}

/// Reads an optional string.
pub(crate) fn text(name: &str, value: Json<'_>) -> Result<Option<String>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    value.as_str().map(|text| Some(text.into_owned())).ok_or_else(|| Error::wrong(name, "a string"))
}

/// Reads an optional boolean as engines do: 0, 1 and the usual words count.
pub(crate) fn flag(name: &str, value: Json<'_>) -> Result<Option<bool>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    let word = value.as_str().or_else(|| value.as_number().map(Into::into));
    let flag = value.as_bool().or_else(|| match word?.to_ascii_lowercase().as_str() {
        "1" | "1.0" | "true" | "t" | "yes" | "y" | "on" => Some(true),
        "0" | "0.0" | "false" | "f" | "no" | "n" | "off" => Some(false),
        _ => None,
    });
    flag.map(Some).ok_or_else(|| Error::wrong(name, "a boolean"))
}

/// Reads an optional integer as engines do: whole floats and strings of digits count.
pub(crate) fn integer(name: &str, value: Json<'_>) -> Result<Option<i64>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    let spelled = value.as_number().map(Into::into).or_else(|| value.as_str());
    let integer = spelled.and_then(|spelled| {
        let spelled = spelled.trim();
        let whole = spelled.split_once('.').map_or(spelled, |(whole, fraction)| {
            if fraction.bytes().all(|digit| digit == b'0') { whole } else { "" }
        });
        whole.parse().ok()
    });
    integer.map(Some).ok_or_else(|| Error::wrong(name, "an integer"))
}

fn count(name: &str, value: Json<'_>) -> Result<Option<u32>, Error> {
    match integer(name, value)? {
        None => Ok(None),
        Some(count) => match u32::try_from(count) {
            Ok(count) => Ok(Some(count)),
            Err(_) => Err(Error::refused(name, "is out of range")),
        },
    }
}
