//! Keyword arguments that an engine was started with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Keyword arguments as engines take them on their command lines: one JSON object; spelled canonically, so that equal
/// ones are equal texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kwargs(Map<String, Value>);

/// A text that is no JSON object.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a JSON object")]
pub struct KwargsError {
    /// The text.
    pub text: String,
}

impl Kwargs {
    /// Returns the arguments by name.
    #[must_use]
    pub const fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns the arguments by name.
    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Spells the object; empty where there are no arguments.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.0.is_empty() { String::new() } else { self.to_string() }
    }
}

impl fmt::Display for Kwargs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde_json::to_string(&sorted(&Value::Object(self.0.clone()))).map_err(|_| fmt::Error)?.fmt(f)
    }
}

impl FromStr for Kwargs {
    type Err = KwargsError;

    /// Reads an object; an empty text is an empty one.
    fn from_str(text: &str) -> Result<Self, KwargsError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) | Err(_) => Err(KwargsError { text: text.to_owned() }),
        }
    }
}

impl TryFrom<String> for Kwargs {
    type Error = KwargsError;

    fn try_from(text: String) -> Result<Self, KwargsError> {
        text.parse()
    }
}

impl From<Kwargs> for String {
    fn from(kwargs: Kwargs) -> Self {
        kwargs.to_text()
    }
}

/// Orders an object's members by name, at every depth: whether maps keep their order is up to the build.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            members.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_objects_are_spelled_alike() {
        let text = |text: &str| text.parse::<Kwargs>().map(|kwargs| kwargs.to_text()).ok();
        let expected = Some(r#"{"a":{"x":[1],"y":2},"b":1}"#.to_owned());
        assert_eq!(text(r#"{"b": 1, "a": {"y": 2, "x": [1]}}"#), expected);
        assert_eq!(text(r#"{"a":{"x":[1],"y":2},"b":1}"#), expected);
        assert_eq!((text(""), text(" {} ")), (Some(String::new()), Some(String::new())));
        assert_eq!((text("[1]"), text("{"), text("max_pixels=3")), (None, None, None));
    }
}
