//! What Hugging Face's renderer has and minijinja lacks.

use std::borrow::Cow;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, ErrorKind, State, Value};
use minijinja_contrib::globals::joiner;

use super::{python_json, python_methods, python_text, strftime};

/// Name of the variable that carries the clock; no template can spell it.
pub(super) const NOW: &str = "sightline now";

/// A worker's wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Seconds since the Unix epoch.
    pub unix_seconds: i64,
    /// The worker's offset from UTC, in seconds east.
    pub utc_offset_seconds: i32,
}

impl Clock {
    /// Returns the local time as seconds since the epoch.
    pub(super) fn to_value(self) -> Value {
        Value::from(self.unix_seconds.saturating_add(i64::from(self.utc_offset_seconds)))
    }
}

/// Carries the text of `raise_exception` through minijinja's errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// Installs the shims.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(python_methods::call);
    environment.set_formatter(python_text::format);
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: &Value| python_text::string(value));
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_function("joiner", joiner);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
}

/// Finds the text that `raise_exception` was given.
pub(super) fn raised(error: &minijinja::Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// Jinja's `int`: what is no number becomes the default.
#[expect(clippy::needless_pass_by_value, reason = "minijinja passes keyword arguments by value")]
fn int(value: &Value, default: Option<i64>, options: Kwargs) -> Result<Value, minijinja::Error> {
    let default = options.get::<Option<i64>>("default")?.or(default).unwrap_or_default();
    options.assert_all_used()?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    let text = value.as_str().map(str::trim);
    if let Some(whole) = text.and_then(|text| text.parse::<i128>().ok()) {
        return Ok(Value::from(whole));
    }
    let number = number(value);
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    let whole = number.filter(|number| number.abs() < 1e36).map(|number| number.trunc() as i128);
    Ok(whole.map_or_else(|| Value::from(default), Value::from))
}

/// Jinja's `float`: what is no number becomes the default.
#[expect(clippy::needless_pass_by_value, reason = "minijinja passes keyword arguments by value")]
fn float(value: &Value, default: Option<f64>, options: Kwargs) -> Result<f64, minijinja::Error> {
    let default = options.get::<Option<f64>>("default")?.or(default).unwrap_or_default();
    options.assert_all_used()?;
    Ok(number(value).unwrap_or(default))
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    }
}

fn raise_exception(message: &Value) -> Result<Value, minijinja::Error> {
    let message = python_text::string(message);
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> String {
    let local = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or_default();
    strftime::format(format, local)
}

/// `json.dumps` with Hugging Face's defaults: `ensure_ascii=False`, `", "` and `": "` as separators.
#[expect(clippy::needless_pass_by_value, reason = "minijinja passes keyword arguments by value")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let mut style = python_json::Style {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or_default(),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or_default(),
        ..python_json::Style::default()
    };
    let indent: Option<Value> = options.get("indent")?;
    style.indent = indent.and_then(|indent| match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None => indent.as_usize().map(|width| " ".repeat(width.min(64))),
    });
    if style.indent.is_some() {
        style.item_separator = Cow::Borrowed(",");
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    if let Some([item, key]) = separators.as_deref() {
        style.item_separator = Cow::Owned(item.clone());
        style.key_separator = Cow::Owned(key.clone());
    }
    options.assert_all_used()?;
    Ok(Value::from_safe_string(python_json::dump(value, &style)?))
}

/// Rewrites what minijinja reads differently.
///
/// ```text
/// {% generation %}      →  {% if true %}      a block that only marks a span
/// {% endgeneration %}   →  {% endif %}
/// {% raw %}⏎            →  {% raw %}⏎⏎        minijinja drops the newline, Jinja doesn't
/// ```
pub(super) fn adapted(source: &str) -> String {
    let mut adapted = String::with_capacity(source.len() + 16);
    let mut rest = source;
    let mut raw = false;
    while let Some((before, tag, after)) = next_tag(rest) {
        adapted.push_str(before);
        rest = after;
        match (tag.trim_matches(['{', '%', '-', '+', '}', ' ', '\t', '\r', '\n']), raw) {
            ("endraw", _) => {
                raw = false;
                adapted.push_str(tag);
            }
            ("raw", false) => {
                raw = true;
                adapted.push_str(tag);
                if after.starts_with('\n') && !tag.ends_with("-%}") {
                    adapted.push('\n');
                }
            }
            ("generation", false) => adapted.push_str(&tag.replace("generation", "if true")),
            ("endgeneration", false) => adapted.push_str(&tag.replace("endgeneration", "endif")),
            _ => adapted.push_str(tag),
        }
    }
    adapted.push_str(rest);
    adapted
}

/// Splits a source around its first block tag.
fn next_tag(source: &str) -> Option<(&str, &str, &str)> {
    let start = source.find("{%")?;
    let (before, from) = source.split_at(start);
    let (tag, after) = from.split_at(from.find("%}")? + 2);
    Some((before, tag, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_only_tags_outside_of_raw_blocks() {
        for (source, expected) in [
            ("a{%- generation -%}b{% endgeneration %}", "a{%- if true -%}b{% endif %}"),
            ("{% raw %}\n{% generation %}{% endraw %}", "{% raw %}\n\n{% generation %}{% endraw %}"),
            ("{% raw -%}\nx{%endraw%}{%generation%}", "{% raw -%}\nx{%endraw%}{%if true%}"),
            ("{% set generation = 1 %}{{ '{%' }}", "{% set generation = 1 %}{{ '{%' }}"),
        ] {
            assert_eq!(adapted(source), expected);
        }
    }
}
