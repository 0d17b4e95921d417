//! `str` and `repr` of Python values.

use std::fmt::Write;

use minijinja::value::ValueKind;
use minijinja::{ErrorKind, Output, State, Value};

/// How deep a value may nest.
const DEPTH_MAX: usize = 200;

/// Writes a value where a template prints it.
pub(super) fn format(
    out: &mut Output<'_>,
    _: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), minijinja::Error> {
    let failed = |_| minijinja::Error::new(ErrorKind::BadSerialization, "cannot write the output");
    match value.as_str() {
        Some(text) => out.write_str(text).map_err(failed),
        None => out.write_str(&string(value)).map_err(failed),
    }
}

/// Returns what `str(value)` is in Python.
pub(super) fn string(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => {
            let mut text = String::new();
            repr(&mut text, value, 0);
            text
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "minijinja's kinds may grow; all others are treated alike"
)]
fn repr(text: &mut String, value: &Value, depth: usize) {
    match value.kind() {
        _ if depth > DEPTH_MAX => text.push_str("..."),
        ValueKind::Undefined => {}
        ValueKind::None => text.push_str("None"),
        ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if value.is_integer() => text.push_str(&value.to_string()),
        ValueKind::Number => text.push_str(&float(f64::try_from(value.clone()).unwrap_or(f64::NAN))),
        ValueKind::String => quoted(text, value.as_str().unwrap_or_default()),
        ValueKind::Seq => sequence(text, value, depth),
        ValueKind::Map => mapping(text, value, depth),
        _ => text.push_str(&value.to_string()),
    }
}

fn sequence(text: &mut String, value: &Value, depth: usize) {
    let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
    text.push(open);
    for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        repr(text, &item, depth + 1);
    }
    if value.is_tuple() && value.len() == Some(1) {
        text.push(',');
    }
    text.push(close);
}

fn mapping(text: &mut String, value: &Value, depth: usize) {
    text.push('{');
    for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        repr(text, &key, depth + 1);
        text.push_str(": ");
        repr(text, &value.get_item(&key).unwrap_or_default(), depth + 1);
    }
    text.push('}');
}

/// Quotes a string as Python does: single quotes unless only the others need no escape.
fn quoted(text: &mut String, string: &str) {
    let quote = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for character in string.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            _ if character == quote => text.extend(['\\', character]),
            _ if is_printable(character) => text.push(character),
            _ => {
                let code = u32::from(character);
                let written = match code {
                    0..0x100 => write!(text, "\\x{code:02x}"),
                    0x100..0x1_0000 => write!(text, "\\u{code:04x}"),
                    _ => write!(text, "\\U{code:08x}"),
                };
                debug_assert!(written.is_ok(), "a string takes everything");
            }
        }
    }
    text.push(quote);
}

/// Tells whether Python prints a character as it is: all but controls, separators and what is not assigned.
fn is_printable(character: char) -> bool {
    // Rust escapes the same categories, and combining characters where they come first: hence the letter before.
    let mut before = [b'a'; 5];
    let room = before.get_mut(1..).unwrap_or_default();
    let len = character.encode_utf8(room).len();
    let text = before.get(..=len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    character.is_ascii_graphic() || character == ' ' || !text.escape_debug().any(|escaped| escaped == '\\')
}

/// Returns `repr` of a finite or infinite float: the shortest digits, an exponent below 1e-4 and from 1e16.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
