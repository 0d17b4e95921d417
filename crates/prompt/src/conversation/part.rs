//! Content parts.

use std::borrow::Cow;

use minijinja::Value;

use crate::error::Error;
use crate::json::{Json, Kind};
use crate::media_part::{self, MediaKind};

/// A normalised part of a message's content.
#[derive(Clone, Debug)]
pub(super) enum Part<'a> {
    /// Text, and what else the client said of it.
    Text { text: Cow<'a, str>, extras: Vec<(Cow<'a, str>, Value)> },
    /// A medium, and what else the client said of it.
    Media { modality: &'static str, extras: Vec<(Cow<'a, str>, Value)> },
    /// A reference to a tool.
    Tool { name: Cow<'a, str> },
}

impl<'a> Part<'a> {
    /// Reads a part; nothing if the engine skips it.
    pub(super) fn read(part: Json<'a>, path: impl Fn() -> String) -> Result<Option<Self>, Error> {
        if let Some(text) = part.as_str() {
            return Ok(Some(Self::Text { text, extras: Vec::new() }));
        }
        let part_type = part.given("type").map(|name| name.as_str());
        let part_type = match part_type {
            Some(None) => return Err(Error::wrong(format!("{}.type", path()), "a string")),
            Some(Some(name)) => Some(name),
            None => None,
        };
        let has_uuid = part.given("uuid").is_some();
        if let Some(name) = part_type.as_deref().filter(|_| !has_uuid) {
            if let Some(member) = text_member(name) {
                return Self::text(part, member, path);
            }
            if name == "tool_reference" {
                return Self::tool(part, path).map(Some);
            }
            if let Some((_, kind)) = media_part::named(name) {
                return Ok(Some(Self::Media { modality: modality(name, kind), extras: extras(part) }));
            }
            return Err(Error::refused(format!("{}.type", path()), format!("is not supported: {name:?}")));
        }
        match media_part::member(part) {
            Some((member, kind)) => {
                Ok(Some(Self::Media { modality: modality(member, kind), extras: extras(part) }))
            }
            None if part.get("tool_reference").is_some() => Self::tool(part, path).map(Some),
            None => Err(Error::Missing { param: format!("{}.type", path()) }),
        }
    }

    fn text(part: Json<'a>, member: &str, path: impl Fn() -> String) -> Result<Option<Self>, Error> {
        match part.get(member).map(|text| (text.is_null(), text.as_str())) {
            Some((_, Some(text))) => Ok(Some(Self::Text { text, extras: extras(part) })),
            Some((true, None)) if matches!(member, "text" | "refusal") => Ok(None),
            Some((_, None)) => Err(Error::wrong(format!("{}.{member}", path()), "a string")),
            None => Err(Error::Missing { param: format!("{}.{member}", path()) }),
        }
    }

    fn tool(part: Json<'a>, path: impl Fn() -> String) -> Result<Self, Error> {
        let name = part.get("name").and_then(Json::as_str);
        name.map(|name| Self::Tool { name })
            .ok_or_else(|| Error::wrong(format!("{}.name", path()), "a string"))
    }

    /// Returns a text part's text.
    pub(super) fn text_mut(&mut self) -> Option<&mut Cow<'a, str>> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Media { .. } | Self::Tool { .. } => None,
        }
    }

    /// Makes the dictionary that templates see.
    pub(super) fn into_value(self) -> Value {
        let typed = |name: &'static str| (Value::from("type"), Value::from(name));
        let all = |extras: Vec<(Cow<'a, str>, Value)>| {
            extras.into_iter().map(|(name, value)| (Value::from(&*name), value))
        };
        match self {
            Self::Text { text, extras } => Value::from_pairs(
                [typed("text"), (Value::from("text"), Value::from(&*text))].into_iter().chain(all(extras)),
            ),
            Self::Media { modality, extras } => {
                Value::from_pairs([typed(modality)].into_iter().chain(all(extras)))
            }
            Self::Tool { name } => {
                Value::from_pairs([typed("tool_reference"), (Value::from("name"), Value::from(&*name))])
            }
        }
    }
}

/// Returns where a text part keeps its text.
fn text_member(part_type: &str) -> Option<&'static str> {
    match part_type {
        "text" | "input_text" | "output_text" => Some("text"),
        "refusal" => Some("refusal"),
        "thinking" => Some("thinking"),
        _ => None,
    }
}

fn modality(member: &str, kind: MediaKind) -> &'static str {
    match (kind, member) {
        (MediaKind::Video, _) | (MediaKind::Embeds, "video_embeds") => "video",
        (MediaKind::Audio, _) | (MediaKind::Embeds, "audio_embeds") => "audio",
        (MediaKind::Image | MediaKind::Embeds, _) => "image",
    }
}

/// The members of a part that its types define; templates don't see them, they do see all others.
const DEFINED: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

fn extras<'a>(part: Json<'a>) -> Vec<(Cow<'a, str>, Value)> {
    part.members()
        .filter(|(name, _)| !DEFINED.contains(&&**name))
        .map(|(name, member)| (name, value(member)))
        .collect()
}

/// Makes a template's value of a JSON value.
pub(crate) fn value(json: Json<'_>) -> Value {
    match json.kind() {
        Kind::Null => Value::from(()),
        Kind::Bool(flag) => Value::from(flag),
        Kind::Number => number(json.as_number().unwrap_or_default()),
        Kind::Plain | Kind::Escaped => Value::from(&*json.as_str().unwrap_or_default()),
        Kind::Array => Value::from_iter(json.items().map(value)),
        Kind::Object => {
            Value::from_pairs(json.members().map(|(name, member)| (Value::from(&*name), value(member))))
        }
    }
}

fn number(spelled: &str) -> Value {
    if let Ok(integer) = spelled.parse::<i64>() {
        return Value::from(integer);
    }
    if let Ok(integer) = spelled.parse::<i128>() {
        return Value::from(integer);
    }
    Value::from(spelled.parse::<f64>().unwrap_or(f64::NAN))
}
