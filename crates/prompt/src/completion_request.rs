//! A completion request, parsed once.

use std::fmt;

use bytes::Bytes;

use crate::error::Error;
use crate::json::{self, Json, Kind};
use crate::params::Params;
use crate::rewrite::SaltPlace;

/// How many prompts one request may hold.
const PROMPTS_MAX: usize = 4096;

/// How many values a body may have: each token id is one.
const VALUES_MAX: usize = 4 << 20;

/// One prompt of a completion request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionPrompt {
    /// Text, to be tokenised with special tokens unless told otherwise.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
}

/// The body of `/v1/completions`.
#[derive(Clone)]
pub struct CompletionRequest {
    body: Bytes,
    params: Params,
    prompts: Vec<CompletionPrompt>,
    salt_place: Result<SaltPlace, Error>,
}

impl CompletionRequest {
    /// Parses a body whose `prompt` is a string, a list of strings, token ids, or a list of lists of token ids.
    ///
    /// # Errors
    /// When an engine would answer the body with 400 for its form.
    pub fn parse(body: &Bytes) -> Result<Self, Error> {
        let document = json::parse_bounded(body, VALUES_MAX)?;
        let root = document.root();
        if root.kind() != Kind::Object {
            return Err(Error::wrong("body", "an object"));
        }
        let mut params = Params::new();
        let mut prompt = None;
        let (mut echo, mut logprobs) = (false, false);
        for (name, value) in root.members() {
            match &*name {
                "prompt" => prompt = Some(value),
                "echo" => echo = crate::params::flag(&name, value)?.unwrap_or_default(),
                "logprobs" => logprobs = !value.is_null(),
                _ => {
                    params.read(&name, value)?;
                }
            }
        }
        params.reading.skips_prefix_cache |= echo && logprobs;
        let prompt = prompt.filter(|prompt| !prompt.is_null());
        let prompt = prompt.ok_or_else(|| Error::Missing { param: "prompt".into() })?;
        let prompts = read_prompts(prompt)?;
        let salt_place = SaltPlace::find(root);
        Ok(Self { body: body.clone(), params, prompts, salt_place })
    }

    /// Returns where the salt stands, or why it cannot be told.
    pub(crate) const fn salt_place(&self) -> Result<&SaltPlace, &Error> {
        self.salt_place.as_ref()
    }

    /// Returns the parameters that routing reads.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Returns the model's name.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.params.model.as_deref()
    }

    /// Returns the prompts, at least one.
    #[must_use]
    pub fn prompts(&self) -> &[CompletionPrompt] {
        &self.prompts
    }

    /// Returns the body as it came.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for CompletionRequest {
    /// Prompts never reach a log: shows sizes only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionRequest")
            .field("bytes", &self.body.len())
            .field("prompts", &self.prompts.len())
            .finish_non_exhaustive()
    }
}

fn read_prompts(prompt: Json<'_>) -> Result<Vec<CompletionPrompt>, Error> {
    let wrong = || Error::wrong("prompt", "a string, token ids, or an array of these");
    let prompts = match prompt.kind() {
        Kind::Plain | Kind::Escaped => vec![read_prompt(prompt)?],
        Kind::Array => match prompt.items().next().map(Json::kind) {
            None => return Err(Error::refused("prompt", "must not be empty")),
            Some(Kind::Number) => vec![read_prompt(prompt)?],
            Some(_) => prompt.items().take(PROMPTS_MAX + 1).map(read_prompt).collect::<Result<_, _>>()?,
        },
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Object => return Err(wrong()),
    };
    if prompts.len() > PROMPTS_MAX {
        return Err(Error::refused("prompt", format!("holds more than {PROMPTS_MAX} prompts")));
    }
    Ok(prompts)
}

fn read_prompt(prompt: Json<'_>) -> Result<CompletionPrompt, Error> {
    if let Some(text) = prompt.as_str() {
        return Ok(CompletionPrompt::Text(text.into_owned()));
    }
    if prompt.kind() != Kind::Array {
        return Err(Error::wrong("prompt", "a string, token ids, or an array of these"));
    }
    let tokens: Vec<u32> = prompt.items().map(read_token).collect::<Result<_, _>>()?;
    if tokens.is_empty() {
        Err(Error::refused("prompt", "must not be empty"))
    } else {
        Ok(CompletionPrompt::Tokens(tokens))
    }
}

fn read_token(token: Json<'_>) -> Result<u32, Error> {
    token
        .as_number()
        .and_then(|spelled| spelled.parse().ok())
        .ok_or_else(|| Error::wrong("prompt", "made of non-negative token ids"))
}
