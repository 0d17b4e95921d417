//! `json.dumps`.

use std::borrow::Cow;

use minijinja::value::ValueKind;
use minijinja::{ErrorKind, Value};

use super::python_text::float;

/// How deep a value may nest.
const DEPTH_MAX: usize = 200;

/// The options of `json.dumps`.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) indent: Option<String>,
    pub(super) item_separator: Cow<'static, str>,
    pub(super) key_separator: Cow<'static, str>,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            ensure_ascii: false,
            sort_keys: false,
            indent: None,
            item_separator: Cow::Borrowed(", "),
            key_separator: Cow::Borrowed(": "),
        }
    }
}

/// Dumps a value.
pub(super) fn dump(value: &Value, style: &Style) -> Result<String, minijinja::Error> {
    let mut text = String::new();
    Writer { text: &mut text, style }.value(value, 0)?;
    Ok(text)
}

struct Writer<'a> {
    text: &'a mut String,
    style: &'a Style,
}

impl Writer<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "minijinja's kinds may grow; all others are treated alike"
    )]
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
        if depth > DEPTH_MAX {
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, "too deeply nested for JSON"));
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.array(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => {
                let message = format!("Object of type {kind} is not JSON serializable");
                return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) {
        if value.is_integer() {
            self.text.push_str(&value.to_string());
            return;
        }
        let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
        self.text.push_str(&match number {
            _ if number.is_nan() => Cow::Borrowed("NaN"),
            f64::INFINITY => Cow::Borrowed("Infinity"),
            f64::NEG_INFINITY => Cow::Borrowed("-Infinity"),
            _ => Cow::Owned(float(number)),
        });
    }

    fn array(&mut self, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
        self.text.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            self.before_item(any, depth + 1);
            self.value(&item, depth + 1)?;
            any = true;
        }
        self.after_items(any, depth);
        self.text.push(']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
        self.text.push('{');
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        let any = !keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.before_item(index > 0, depth + 1);
            match key.as_str() {
                Some(name) => self.string(name),
                None => self.key(key),
            }
            self.text.push_str(&self.style.key_separator);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.after_items(any, depth);
        self.text.push('}');
        Ok(())
    }

    /// Writes a key that is no string, as Python coerces it.
    fn key(&mut self, key: &Value) {
        self.text.push('"');
        if key.is_none() {
            self.text.push_str("null");
        } else if key.is_number() {
            self.number(key);
        } else if key.kind() == ValueKind::Bool {
            self.text.push_str(if key.is_true() { "true" } else { "false" });
        } else {
            self.text.push_str(&key.to_string());
        }
        self.text.push('"');
    }

    fn before_item(&mut self, separated: bool, depth: usize) {
        if separated {
            self.text.push_str(&self.style.item_separator);
        }
        self.line(depth);
    }

    fn after_items(&mut self, any: bool, depth: usize) {
        if any {
            self.line(depth);
        }
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.text.push('\n');
            for _ in 0..depth {
                self.text.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\0'..='\u{1f}' => self.unicode(character),
                '\u{7f}'.. if self.style.ensure_ascii && !character.is_ascii() => self.unicode(character),
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    fn unicode(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.text.push_str(&format!("\\u{unit:04x}"));
        }
    }
}
