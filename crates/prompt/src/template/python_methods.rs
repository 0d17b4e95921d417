//! Methods of Python's strings that `minijinja-contrib` lacks.

use minijinja::value::{Tuple, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls a method that minijinja doesn't know of a value.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.as_str().map(|text| string(text, method, args)) {
        Some(Some(result)) => result,
        Some(None) | None => unknown_method_callback(state, value, method, args),
    }
}

fn string(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "removeprefix" => one(args, |prefix| text.strip_prefix(prefix).unwrap_or(text).into()),
        "removesuffix" => one(args, |suffix| text.strip_suffix(suffix).unwrap_or(text).into()),
        "partition" => one(args, |separator| partition(text, text.split_once(separator), separator, false)),
        "rpartition" => one(args, |separator| partition(text, text.rsplit_once(separator), separator, true)),
        "find" => one(args, |part| place(text, text.find(part)).unwrap_or(-1).into()),
        "rfind" => one(args, |part| place(text, text.rfind(part)).unwrap_or(-1).into()),
        "index" => one(args, |part| place(text, text.find(part))).and_then(found),
        "rindex" => one(args, |part| place(text, text.rfind(part))).and_then(found),
        "rsplit" => rsplit(text, args),
        "swapcase" => Ok(Value::from(text.chars().flat_map(swap).collect::<String>())),
        "zfill" => zfill(text, args),
        _ => return None,
    })
}

fn one<T>(args: &[Value], apply: impl FnOnce(&str) -> T) -> Result<T, Error> {
    let (argument,) = from_args::<(&str,)>(args)?;
    Ok(apply(argument))
}

fn partition(text: &str, parts: Option<(&str, &str)>, separator: &str, from_end: bool) -> Value {
    let parts = match parts {
        Some((before, after)) => [before, separator, after],
        None if from_end => ["", "", text],
        None => [text, "", ""],
    };
    Value::from_object(Tuple::new(parts.into_iter().map(Value::from).collect()))
}

/// Converts a byte offset to Python's, in characters.
fn place(text: &str, offset: Option<usize>) -> Option<i64> {
    let before = text.get(..offset?)?;
    i64::try_from(before.chars().count()).ok()
}

fn found(place: Option<i64>) -> Result<Value, Error> {
    place.map(Value::from).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit) = from_args::<(Option<&str>, Option<i64>)>(args)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let parts = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let mut pieces: Vec<&str> = match separator {
        Some(separator) => text.rsplitn(parts, separator).collect(),
        None => {
            let mut rest = text.trim_end();
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let cut = if pieces.len() + 1 < parts { rest.rfind(char::is_whitespace) } else { None };
                let from = cut.map_or(0, |at| {
                    at + rest.get(at..).and_then(|tail| tail.chars().next()).map_or(1, char::len_utf8)
                });
                pieces.push(rest.get(from..).unwrap_or_default());
                rest = rest.get(..cut.unwrap_or_default()).unwrap_or_default().trim_end();
            }
            pieces
        }
    };
    pieces.reverse();
    Ok(Value::from_iter(pieces))
}

fn swap(character: char) -> Vec<char> {
    if character.is_uppercase() {
        character.to_lowercase().collect()
    } else {
        character.to_uppercase().collect()
    }
}

fn zfill(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,) = from_args::<(usize,)>(args)?;
    let missing = width.min(1 << 16).saturating_sub(text.chars().count());
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))))
}
