//! A chat request, parsed once.

use std::fmt;

use bytes::Bytes;

use crate::error::Error;
use crate::json::{self, Document, Json, Kind};
use crate::media_part::{self, MediaPart};
use crate::params::{self, Params};

/// How many media items a request may hold.
const MEDIA_MAX: usize = 1024;

/// The body of `/v1/chat/completions`.
#[derive(Clone)]
pub struct ChatRequest {
    document: Document,
    params: Params,
    template: TemplateParams,
    messages: u32,
    media: Vec<MediaPart>,
}

/// What a request tells the chat template.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateParams {
    pub(crate) ending: Ending,
    pub(crate) custom_media_kwargs: bool,
    pub(crate) tools: Option<u32>,
    pub(crate) tool_choice_none: bool,
    pub(crate) documents: Option<u32>,
    pub(crate) kwargs: Option<u32>,
    pub(crate) reasoning_effort: Option<String>,
}

/// How the prompt is to end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    /// `add_generation_prompt: false`.
    pub(crate) no_generation_prompt: bool,
    /// `continue_final_message: true`.
    pub(crate) continue_final_message: bool,
}

impl ChatRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// When an engine would answer the body with 400 for its form: malformed JSON, wrong types, no messages, or a
    /// media part that is none.
    pub fn parse(body: &Bytes) -> Result<Self, Error> {
        let document = json::parse(body)?;
        let root = document.root();
        if root.kind() != Kind::Object {
            return Err(Error::wrong("body", "an object"));
        }
        let mut params = Params::new();
        let mut template = TemplateParams::default();
        let mut messages = None;
        for (name, value) in root.members() {
            if name == "messages" {
                messages = Some(value);
            } else if !params.read(&name, value)? {
                template.read(&name, value)?;
            }
        }
        let messages = messages.ok_or_else(|| Error::Missing { param: "messages".into() })?;
        let media = read_messages(messages)?;
        let messages = messages.position();
        Ok(Self { document, params, template, messages, media })
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

    /// Returns the media items, in order of appearance.
    #[must_use]
    pub fn media(&self) -> &[MediaPart] {
        &self.media
    }

    /// Tells whether the request changes how media are processed (`mm_processor_kwargs`, `media_io_kwargs`), and with
    /// it their identity and their counts.
    #[must_use]
    pub const fn has_media_kwargs(&self) -> bool {
        self.template.custom_media_kwargs
    }

    /// Tells whether the request offers tools.
    #[must_use]
    pub const fn has_tools(&self) -> bool {
        self.template.tools.is_some()
    }

    /// Returns the body as it came.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        self.document.body()
    }

    pub(crate) const fn document(&self) -> &Document {
        &self.document
    }

    pub(crate) const fn template(&self) -> &TemplateParams {
        &self.template
    }

    pub(crate) const fn messages(&self) -> Json<'_> {
        self.document.at(self.messages)
    }
}

impl fmt::Debug for ChatRequest {
    /// Prompts never reach a log: shows sizes only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatRequest")
            .field("bytes", &self.body().len())
            .field("media", &self.media.len())
            .finish_non_exhaustive()
    }
}

impl TemplateParams {
    fn read(&mut self, name: &str, value: Json<'_>) -> Result<(), Error> {
        match name {
            "add_generation_prompt" => {
                self.ending.no_generation_prompt = params::flag(name, value)? == Some(false);
            }
            "continue_final_message" => {
                self.ending.continue_final_message = params::flag(name, value)?.unwrap_or_default();
            }
            "tools" => self.tools = list(name, value)?,
            "tool_choice" => self.tool_choice_none = value.as_str().is_some_and(|choice| choice == "none"),
            "documents" => self.documents = list(name, value)?,
            "chat_template_kwargs" => self.kwargs = object(name, value)?,
            "reasoning_effort" => self.reasoning_effort = params::text(name, value)?,
            "mm_processor_kwargs" | "media_io_kwargs" => {
                self.custom_media_kwargs |=
                    object(name, value)?.is_some_and(|_| value.members().next().is_some());
            }
            "chat_template" if !value.is_null() => {
                return Err(Error::refused(name, "is set by the server, not by requests"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn list(name: &str, value: Json<'_>) -> Result<Option<u32>, Error> {
    match value.kind() {
        Kind::Null => Ok(None),
        Kind::Array => Ok(Some(value.position())),
        Kind::Bool(_) | Kind::Number | Kind::Plain | Kind::Escaped | Kind::Object => {
            Err(Error::wrong(name, "an array"))
        }
    }
}

fn object(name: &str, value: Json<'_>) -> Result<Option<u32>, Error> {
    match value.kind() {
        Kind::Null => Ok(None),
        Kind::Object => Ok(Some(value.position())),
        Kind::Bool(_) | Kind::Number | Kind::Plain | Kind::Escaped | Kind::Array => {
            Err(Error::wrong(name, "an object"))
        }
    }
}

/// Checks the messages' form and collects their media.
fn read_messages(messages: Json<'_>) -> Result<Vec<MediaPart>, Error> {
    if messages.kind() != Kind::Array {
        return Err(Error::wrong("messages", "an array"));
    }
    let mut media = Vec::new();
    let mut any = false;
    for (at, message) in messages.items().enumerate() {
        any = true;
        read_message(message, at, &mut media)?;
    }
    if any { Ok(media) } else { Err(Error::refused("messages", "must hold at least one message")) }
}

fn read_message(message: Json<'_>, at: usize, media: &mut Vec<MediaPart>) -> Result<(), Error> {
    if message.kind() != Kind::Object {
        return Err(Error::wrong(format!("messages[{at}]"), "an object"));
    }
    match message.get("role").map(Json::as_str) {
        Some(Some(_)) => {}
        Some(None) => return Err(Error::wrong(format!("messages[{at}].role"), "a string")),
        None => return Err(Error::Missing { param: format!("messages[{at}].role") }),
    }
    let Some(content) = message.given("content") else { return Ok(()) };
    match content.kind() {
        Kind::Array => {}
        Kind::Plain | Kind::Escaped => return Ok(()),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Object => {
            return Err(Error::wrong(format!("messages[{at}].content"), "a string or an array of parts"));
        }
    }
    for (index, part) in content.items().enumerate() {
        match part.kind() {
            Kind::Plain | Kind::Escaped => {}
            Kind::Object => {
                if let Some(item) = media_part::read(part, media.len(), (at, index))? {
                    media.push(item);
                }
                if media.len() > MEDIA_MAX {
                    return Err(Error::refused(
                        "messages",
                        format!("hold more than {MEDIA_MAX} media items"),
                    ));
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Array => {
                return Err(Error::wrong(format!("messages[{at}].content[{index}]"), "an object"));
            }
        }
    }
    Ok(())
}
