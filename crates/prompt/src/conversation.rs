//! Normalises a request's messages the way vLLM does before templating.
//!
//! The rules are those of `vllm/renderers/chat_utils.py` and `vllm/renderers/hf.py` of release 0.32, in their order:
//! parts, roles, tool calls, `developer`, the open final message.

mod part;
mod tool;
mod turn;

use minijinja::Value;

use crate::chat_request::{ChatRequest, TemplateParams};
use crate::error::Error;
use crate::json::Json;
use crate::placeholder_text::{Counts, PlaceholderText};
use crate::template::{ContentFormat, Template};
use turn::{Content, Turn};

pub(crate) use part::value;

/// How an engine is told to make a conversation of messages.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// How the template takes content.
    pub(crate) format: ContentFormat,
    /// Whether placeholders stay where the parts stood in text content (`--interleave-mm-strings`).
    pub(crate) interleave: bool,
    /// What stands for media in text content.
    pub(crate) placeholders: PlaceholderText,
    /// Whether tools are hidden when `tool_choice` is `none`.
    pub(crate) hide_unused_tools: bool,
}

/// What marks the end of an open final message in the rendered prompt.
pub(crate) const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A conversation ready for its template.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Value,
    pub(crate) tools: Value,
    /// The text of the final message where it is to be continued.
    pub(crate) open_end: Option<String>,
}

/// Normalises a request's messages and tools.
pub(crate) fn read(request: &ChatRequest, rules: &Rules, template: &Template) -> Result<Conversation, Error> {
    let messages = request.messages();
    let mut counts = Counts::default();
    let mut turns = messages
        .items()
        .enumerate()
        .map(|(at, message)| Turn::read(message, at, rules, &mut counts))
        .collect::<Result<Vec<_>, _>>()?;
    if turns.iter().any(|turn| turn.role == "developer") && !template.names_developer() {
        turns = turn::developer_to_system(turns);
    }
    let params = request.template();
    let open_end =
        if params.ending.continue_final_message { Some(open(&mut turns, params, template)?) } else { None };
    let messages = Value::from_iter(turns.into_iter().map(Turn::into_value));
    let tools = tools(request, rules)?;
    Ok(Conversation { messages, tools, open_end })
}

fn tools(request: &ChatRequest, rules: &Rules) -> Result<Value, Error> {
    let params = request.template();
    let Some(tools) = params.tools.map(|tools| request.document().at(tools)) else {
        return Ok(Value::from(()));
    };
    let tools = tool::definitions(tools)?;
    let hidden = rules.hide_unused_tools && params.tool_choice_none;
    Ok(if hidden { Value::from(()) } else { tools })
}

/// Marks the end of the final message's text, which the engine will continue.
fn open(turns: &mut [Turn<'_>], params: &TemplateParams, template: &Template) -> Result<String, Error> {
    let refused = |reason: &'static str| Error::refused("continue_final_message", reason);
    if !params.ending.no_generation_prompt {
        return Err(refused("and `add_generation_prompt` cannot both be true"));
    }
    if !template.names_content() {
        return Err(refused("is not possible with this model's template"));
    }
    let no_text = || refused("needs text in the final message");
    let last = turns.last_mut().ok_or_else(no_text)?;
    let text = match &mut last.content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.iter_mut().rev().find_map(part::Part::text_mut).ok_or_else(no_text)?,
    };
    let plain = text.to_string();
    text.to_mut().push_str(CONTINUE_TAG);
    Ok(plain)
}

/// Cuts a rendered prompt where its final message is to be continued.
pub(crate) fn cut_at_open_end(mut prompt: String, final_text: &str) -> Result<String, Error> {
    let tag = CONTINUE_TAG.trim();
    let place = prompt.rfind(tag).filter(|_| prompt.contains(final_text.trim()));
    let Some(place) = place else {
        let reason = "is not possible: the template leaves out the final message";
        return Err(Error::refused("continue_final_message", reason));
    };
    let kept = prompt.get(place..).is_some_and(|rest| rest.starts_with(CONTINUE_TAG));
    prompt.truncate(place);
    if !kept {
        prompt.truncate(prompt.trim_end().len());
    }
    Ok(prompt)
}

/// Reads a string member, refusing other types.
fn string<'a>(message: Json<'a>, name: &str, at: usize) -> Result<Option<std::borrow::Cow<'a, str>>, Error> {
    match message.given(name) {
        None => Ok(None),
        Some(value) => {
            value.as_str().map(Some).ok_or_else(|| Error::wrong(format!("messages[{at}].{name}"), "a string"))
        }
    }
}
