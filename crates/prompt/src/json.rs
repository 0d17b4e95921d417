//! A JSON document parsed once into a flat list of nodes that remember where they stand in the body.
//!
//! ```text
//! {"a": [1, "x"]}   →   Object ─ "a" ─ Array ─ 1 ─ "x"        (pre-order; `next` skips a subtree)
//! ```
//! Strings stay in the body: a 10 MB data URI is one node of 16 bytes.

mod parse;
mod scan;
mod text;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

pub(crate) use parse::{parse, parse_bounded};

/// Tells whether bytes may stand between a string's quotes as they are.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    scan::plain(bytes).len == bytes.len()
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as spelled.
    Number,
    /// A string without escapes.
    Plain,
    /// A string with escapes.
    Escaped,
    /// An array.
    Array,
    /// An object: its children alternate names and values.
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    end: u32,
    next: u32,
    kind: Kind,
}

/// A parsed body.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    body: Bytes,
    nodes: Vec<Node>,
}

impl Document {
    /// Returns the body the document was parsed from.
    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the root value.
    pub(crate) fn root(&self) -> Json<'_> {
        Json { document: self, at: 0 }
    }

    /// Returns the value at a position that [`Json::position`] answered.
    pub(crate) const fn at(&self, position: u32) -> Json<'_> {
        Json { document: self, at: position }
    }

    fn node(&self, at: u32) -> Node {
        let none = Node { start: 0, end: 0, next: at.saturating_add(1), kind: Kind::Null };
        usize::try_from(at).ok().and_then(|at| self.nodes.get(at)).copied().unwrap_or(none)
    }
}

/// A value in a document.
#[derive(Clone, Copy)]
pub(crate) struct Json<'a> {
    document: &'a Document,
    at: u32,
}

impl<'a> Json<'a> {
    pub(crate) fn kind(self) -> Kind {
        self.node().kind
    }

    pub(crate) const fn position(self) -> u32 {
        self.at
    }

    /// Returns where the value stands in the body, quotes and brackets included.
    pub(crate) fn span(self) -> Range<usize> {
        let node = self.node();
        index(node.start)..index(node.end)
    }

    /// Returns the value's bytes, quotes and brackets included.
    pub(crate) fn raw(self) -> &'a [u8] {
        self.document.body.get(self.span()).unwrap_or_default()
    }

    pub(crate) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Returns a string's value.
    pub(crate) fn as_str(self) -> Option<Cow<'a, str>> {
        match self.kind() {
            Kind::Plain => std::str::from_utf8(self.between()).ok().map(Cow::Borrowed),
            Kind::Escaped => Some(Cow::Owned(text::unescape(self.between()))),
            Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Array | Kind::Object => None,
        }
    }

    /// Returns a string's bytes as a slice of the body where it has no escapes, else as new bytes.
    pub(crate) fn as_shared(self) -> Option<Bytes> {
        match self.kind() {
            Kind::Plain => Some(self.document.body.slice_ref(self.between())),
            Kind::Escaped => Some(Bytes::from(text::unescape(self.between()))),
            Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Array | Kind::Object => None,
        }
    }

    pub(crate) fn as_bool(self) -> Option<bool> {
        match self.kind() {
            Kind::Bool(value) => Some(value),
            Kind::Null | Kind::Number | Kind::Plain | Kind::Escaped | Kind::Array | Kind::Object => None,
        }
    }

    /// Returns a number as spelled.
    pub(crate) fn as_number(self) -> Option<&'a str> {
        (self.kind() == Kind::Number).then(|| std::str::from_utf8(self.raw()).ok()).flatten()
    }

    /// Iterates over an array's items; nothing for other kinds.
    pub(crate) fn items(self) -> Items<'a> {
        let node = self.node();
        let end = if node.kind == Kind::Array { node.next } else { 0 };
        Items { document: self.document, at: self.at.saturating_add(1), end }
    }

    /// Iterates over an object's members in the body's order; nothing for other kinds.
    pub(crate) fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Json<'a>)> {
        let node = self.node();
        let end = if node.kind == Kind::Object { node.next } else { 0 };
        let mut children = Items { document: self.document, at: self.at.saturating_add(1), end };
        std::iter::from_fn(move || {
            let name = children.next()?;
            let value = children.next()?;
            Some((name.as_str().unwrap_or_default(), value))
        })
    }

    /// Finds a member of an object; of several with one name the last counts, as in Python.
    pub(crate) fn get(self, name: &str) -> Option<Self> {
        self.members().filter(|(key, _)| key == name).last().map(|(_, value)| value)
    }

    /// Finds a member that is not null.
    pub(crate) fn given(self, name: &str) -> Option<Self> {
        self.get(name).filter(|value| !value.is_null())
    }

    fn node(self) -> Node {
        self.document.node(self.at)
    }

    /// Returns the bytes between a string's quotes.
    fn between(self) -> &'a [u8] {
        let span = self.span();
        self.document.body.get(span.start.saturating_add(1)..span.end.saturating_sub(1)).unwrap_or_default()
    }
}

/// Iterator over consecutive siblings.
pub(crate) struct Items<'a> {
    document: &'a Document,
    at: u32,
    end: u32,
}

impl<'a> Iterator for Items<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Json<'a>> {
        if self.at >= self.end {
            return None;
        }
        let item = Json { document: self.document, at: self.at };
        self.at = item.node().next;
        Some(item)
    }
}

fn index(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
    use serde_json::Value;

    use super::*;

    /// Reads a node as `serde_json` would.
    fn read(json: Json<'_>) -> Value {
        match json.kind() {
            Kind::Null => Value::Null,
            Kind::Bool(flag) => Value::Bool(flag),
            Kind::Number => serde_json::from_str(json.as_number().unwrap()).unwrap(),
            Kind::Plain | Kind::Escaped => Value::String(json.as_str().unwrap().into_owned()),
            Kind::Array => Value::Array(json.items().map(read).collect()),
            Kind::Object => {
                Value::Object(json.members().map(|(name, value)| (name.into_owned(), read(value))).collect())
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::String),
            prop::collection::vec(any::<char>(), 100..200)
                .prop_map(|text| Value::String(text.into_iter().collect())),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            let members = prop::collection::vec((any::<String>(), inner.clone()), 0..8);
            prop_oneof![
                prop::collection::vec(inner, 0..8).prop_map(Value::Array),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reads_what_serde_writes(value in values(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let theirs: Value = serde_json::from_str(&text).unwrap();
            let document = parse(&Bytes::from(text)).unwrap();
            prop_assert_eq!(read(document.root()), theirs);
        }

        #[test]
        fn accepts_what_serde_accepts(value in values(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = serde_json::to_vec(&value).unwrap();
            let at = at.index(text.len());
            text[at] = byte;
            let ours = parse(&Bytes::from(text.clone()));
            match serde_json::from_slice::<Value>(&text) {
                Ok(theirs) => prop_assert_eq!(read(ours.unwrap().root()), theirs),
                // Numbers that no float holds are left to who needs their value.
                Err(error) => prop_assert!(ours.is_err() || error.to_string().starts_with("number out of range")),
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(document) = parse(&Bytes::from(bytes)) {
                document.root().get("x");
            }
        }
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(
            parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn says_where_a_body_is_malformed() {
        check("", "malformed JSON at line 1 column 1: unexpected end");
        check("{\"a\": 1,\n }", "malformed JSON at line 2 column 2: expected a member name in quotes");
        check("{\"a\" 1}", "malformed JSON at line 1 column 6: expected `:`");
        check("[1 2]", "malformed JSON at line 1 column 4: expected `,` or `]`");
        check("[1,]", "malformed JSON at line 1 column 4: expected a value");
        check("{} x", "malformed JSON at line 1 column 4: unexpected data after the end");
        check("[01]", "malformed JSON at line 1 column 3: expected `,` or `]`");
        check("[1.]", "malformed JSON at line 1 column 4: invalid number");
        check("[tru]", "malformed JSON at line 1 column 2: expected a value");
        check("\"\\ud800\"", "malformed JSON at line 1 column 2: invalid escape");
        check("\"\n\"", "malformed JSON at line 1 column 2: unescaped control character in a string");
        check("\"abc", "malformed JSON at line 1 column 5: unterminated string");
        check("NaN", "malformed JSON at line 1 column 1: expected a value");
        check(
            &format!("[{}0]", "0,".repeat(1 << 18)),
            "malformed JSON at line 1 column 524289: too many values",
        );
        check(&"[".repeat(129), "malformed JSON at line 1 column 129: too deeply nested");
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let document = parse(&Bytes::from_static(br#"{"a": 1, "b": 2, "\u0061": 3}"#)).unwrap();
        assert_eq!(document.root().get("a").unwrap().as_number(), Some("3"));
        assert_eq!(document.root().get("a").unwrap().span(), 27..28);
        assert_eq!(document.root().get("c").map(Json::kind), None);
    }
}
