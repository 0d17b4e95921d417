//! Messages after normalisation.

use std::borrow::Cow;

use minijinja::Value;

use super::part::{self, Part};
use super::{Rules, string, tool};
use crate::error::Error;
use crate::json::{Json, Kind};
use crate::placeholder_text::{self, Counts, Element};
use crate::template::ContentFormat;

/// A message as templates see it.
#[derive(Clone, Debug)]
pub(super) struct Turn<'a> {
    pub(super) role: Cow<'a, str>,
    pub(super) content: Content<'a>,
    /// The other members, in the order in which vLLM sets them.
    pub(super) members: Vec<(&'static str, Value)>,
}

/// A message's content.
#[derive(Clone, Debug)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl<'a> Turn<'a> {
    /// Normalises a message.
    pub(super) fn read(
        message: Json<'a>,
        at: usize,
        rules: &Rules,
        counts: &mut Counts,
    ) -> Result<Self, Error> {
        let role = string(message, "role", at)?.unwrap_or_default();
        let parts = parts(message, at, role == "system")?;
        let content = match rules.format {
            ContentFormat::Parts if role == "tool" => joined_if_text(parts),
            ContentFormat::Parts => Content::Parts(parts),
            ContentFormat::Text => Content::Text(flattened(parts, at, rules, counts)?),
        };
        let members = members(message, &role, at)?;
        Ok(Self { role, content, members })
    }

    /// Returns the text of the content, its parts joined by newline.
    fn into_text(self) -> String {
        match self.content {
            Content::Text(text) => text.into_owned(),
            Content::Parts(mut parts) => {
                let texts: Vec<&str> =
                    parts.iter_mut().filter_map(|part| part.text_mut().map(|text| &**text)).collect();
                texts.join("\n")
            }
        }
    }

    /// Makes the dictionary that templates see.
    pub(super) fn into_value(self) -> Value {
        let content = match self.content {
            Content::Text(text) => Value::from(&*text),
            Content::Parts(parts) => Value::from_iter(parts.into_iter().map(Part::into_value)),
        };
        let first = [("role", Value::from(&*self.role)), ("content", content)];
        Value::from_pairs(first.into_iter().chain(self.members))
    }
}

/// Reads a message's content as parts.
fn parts(message: Json<'_>, at: usize, system: bool) -> Result<Vec<Part<'_>>, Error> {
    let Some(content) = message.given("content") else { return Ok(Vec::new()) };
    let mut parts = Vec::new();
    if content.kind() == Kind::Array {
        for (index, part) in content.items().enumerate() {
            parts.extend(Part::read(part, || format!("messages[{at}].content[{index}]"))?);
        }
    } else if let Some(text) = content.as_str() {
        parts.push(Part::Text { text, extras: Vec::new() });
    }
    if system {
        parts.retain_mut(keep_without_billing);
    }
    Ok(parts)
}

/// Drops the first line of a system text that begins with Claude Code's billing header; false if nothing is left.
fn keep_without_billing(part: &mut Part<'_>) -> bool {
    let Some(text) = part.text_mut() else { return true };
    if !text.starts_with("x-anthropic-billing-header") {
        return true;
    }
    let rest = text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    let kept = !rest.is_empty();
    *text = Cow::Owned(rest);
    kept
}

/// Joins a tool's text parts; parts that are no text keep them all as they are.
fn joined_if_text(mut parts: Vec<Part<'_>>) -> Content<'_> {
    if !parts.iter().all(|part| matches!(part, Part::Text { .. })) {
        return Content::Parts(parts);
    }
    let texts: Vec<&str> = parts.iter_mut().filter_map(|part| part.text_mut().map(|text| &**text)).collect();
    Content::Text(Cow::Owned(texts.join("\n")))
}

/// Makes one string of a message's parts, for templates that take strings.
fn flattened<'a>(
    parts: Vec<Part<'a>>,
    at: usize,
    rules: &Rules,
    counts: &mut Counts,
) -> Result<Cow<'a, str>, Error> {
    let mut elements = Vec::with_capacity(parts.len());
    for part in parts {
        elements.push(match part {
            Part::Text { text, .. } | Part::Tool { name: text } => Element::Text(text),
            Part::Media { modality, .. } => Element::Media(rules.placeholders.next(modality, counts)),
        });
    }
    placeholder_text::join(elements, rules.interleave).map_err(|token| {
        Error::refused(format!("messages[{at}].content"), format!("has more {token:?} than media"))
    })
}

/// Reads the members that templates see beside role and content.
fn members(message: Json<'_>, role: &str, at: usize) -> Result<Vec<(&'static str, Value)>, Error> {
    let mut members = Vec::new();
    match role {
        "assistant" => {
            if let Some(calls) = message.given("tool_calls").filter(|calls| calls.items().next().is_some()) {
                members.push(("tool_calls", tool::calls(calls, at)?));
            }
            let reasoning = string(message, "reasoning", at)?;
            let reasoning = match reasoning {
                None => string(message, "reasoning_content", at)?,
                given => given,
            };
            if let Some(reasoning) = reasoning {
                let reasoning = Value::from(&*reasoning);
                members.push(("reasoning", reasoning.clone()));
                members.push(("reasoning_content", reasoning));
            }
        }
        "tool" => members.extend(message.get("tool_call_id").map(|id| ("tool_call_id", part::value(id)))),
        _ => {}
    }
    for name in ["name", "task"] {
        members.extend(message.given(name).and_then(Json::as_str).map(|text| (name, Value::from(&*text))));
    }
    if role == "developer" {
        members.push(("tools", message.given("tools").map_or_else(|| Value::from(()), part::value)));
    }
    Ok(members)
}

/// Turns developer messages into system messages, and several system messages into one at the front.
pub(super) fn developer_to_system(mut turns: Vec<Turn<'_>>) -> Vec<Turn<'_>> {
    for turn in turns.iter_mut().filter(|turn| turn.role == "developer") {
        turn.role = Cow::Borrowed("system");
        turn.members.retain(|(name, _)| *name != "tools");
    }
    let first_only = turns.iter().skip(1).all(|turn| turn.role != "system");
    if first_only {
        return turns;
    }
    let (system, mut rest): (Vec<_>, Vec<_>) = turns.into_iter().partition(|turn| turn.role == "system");
    let texts: Vec<String> =
        system.into_iter().map(Turn::into_text).filter(|text| !text.is_empty()).collect();
    let content = Content::Text(Cow::Owned(texts.join("\n\n")));
    rest.insert(0, Turn { role: Cow::Borrowed("system"), content, members: Vec::new() });
    rest
}
