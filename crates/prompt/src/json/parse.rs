//! The parser: strict JSON (RFC 8259), iterative, bounded in depth and in the number of values.

use bytes::Bytes;

use super::scan;
use super::text::escape_at;
use super::{Document, Kind, Node};
use crate::error::Error;

/// How deep arrays and objects may nest.
const DEPTH_MAX: usize = 128;

/// How many values and names most bodies may have: 4 MiB of nodes, and perhaps 100 MB of what a template sees of them.
const VALUES_MAX: usize = 1 << 18;

/// Parses a body of ordinary size.
pub(crate) fn parse(body: &Bytes) -> Result<Document, Error> {
    parse_bounded(body, VALUES_MAX)
}

/// Parses a body that may have so many values and names; each costs 16 bytes.
pub(crate) fn parse_bounded(body: &Bytes, values_max: usize) -> Result<Document, Error> {
    let nodes = Vec::with_capacity(64);
    let mut parser = Parser { bytes: body, at: 0, nodes, open: Vec::with_capacity(8), values_max };
    match parser.document() {
        Ok(()) => Ok(Document { body: body.clone(), nodes: parser.nodes }),
        Err(what) => Err(malformed(body, parser.at, what)),
    }
}

fn malformed(body: &[u8], at: usize, what: &'static str) -> Error {
    let before = body.get(..at).unwrap_or(body);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    Error::Malformed { what, line, column }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    /// Indices of the arrays and objects that are not closed yet.
    open: Vec<usize>,
    values_max: usize,
}

type Step<T = ()> = Result<T, &'static str>;

impl Parser<'_> {
    fn document(&mut self) -> Step {
        if u32::try_from(self.bytes.len()).is_err() {
            return Err("the document is too long");
        }
        self.value()?;
        while let Some(&container) = self.open.last() {
            self.member(container)?;
        }
        self.space();
        if self.at == self.bytes.len() { Ok(()) } else { Err("unexpected data after the end") }
    }

    /// Reads the next member of an open container, or its end.
    fn member(&mut self, container: usize) -> Step {
        let object = self.nodes.get(container).is_some_and(|node| node.kind == Kind::Object);
        let first = self.nodes.len() == container + 1;
        self.space();
        let close = if object { b'}' } else { b']' };
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.close(container);
                return Ok(());
            }
            Some(b',') if !first => self.at += 1,
            Some(_) if first => {}
            Some(_) | None => return Err(if object { "expected `,` or `}`" } else { "expected `,` or `]`" }),
        }
        if object {
            self.space();
            if self.peek() != Some(b'"') {
                return Err("expected a member name in quotes");
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err("expected `:`");
            }
            self.at += 1;
        }
        self.value()
    }

    /// Reads a value; an array or object is only opened.
    fn value(&mut self) -> Step {
        self.space();
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.open(Kind::Object),
            Some(b'[') => self.open(Kind::Array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Kind::Bool(true)),
            Some(b'f') => self.word(b"false", Kind::Bool(false)),
            Some(b'n') => self.word(b"null", Kind::Null),
            Some(_) => Err("expected a value"),
            None => Err("unexpected end"),
        }
    }

    fn open(&mut self, kind: Kind) -> Step {
        if self.open.len() >= DEPTH_MAX {
            return Err("too deeply nested");
        }
        let start = self.at;
        self.at += 1;
        self.open.push(self.nodes.len());
        self.push(start, kind)
    }

    fn close(&mut self, container: usize) {
        let (end, next) = (offset(self.at), offset(self.nodes.len()));
        if let Some(node) = self.nodes.get_mut(container) {
            node.end = end;
            node.next = next;
        }
        self.open.pop();
    }

    fn string(&mut self) -> Step {
        let start = self.at;
        self.at += 1;
        let mut kind = Kind::Plain;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let stretch = scan::plain(rest);
            if !stretch.ascii {
                self.check_utf8(rest.get(..stretch.len).unwrap_or_default())?;
            }
            self.at += stretch.len;
            let rest = rest.get(stretch.len..).unwrap_or_default();
            match rest.first() {
                Some(b'"') => break,
                Some(b'\\') => {
                    kind = Kind::Escaped;
                    self.at += escape_at(rest).ok_or("invalid escape")?.1;
                }
                Some(_) => return Err("unescaped control character in a string"),
                None => return Err("unterminated string"),
            }
        }
        self.at += 1;
        self.push(start, kind)
    }

    fn check_utf8(&mut self, stretch: &[u8]) -> Step {
        std::str::from_utf8(stretch).map(|_| ()).map_err(|error| {
            self.at += error.valid_up_to();
            "invalid UTF-8"
        })
    }

    fn number(&mut self) -> Step {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            Some(_) | None => return Err("invalid number"),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(start, Kind::Number)
    }

    fn digits(&mut self) -> Step {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err("invalid number") } else { Ok(()) }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Step {
        let start = self.at;
        if !self.bytes.get(start..).is_some_and(|rest| rest.starts_with(word)) {
            return Err("expected a value");
        }
        self.at += word.len();
        self.push(start, kind)
    }

    fn push(&mut self, start: usize, kind: Kind) -> Step {
        if self.nodes.len() >= self.values_max {
            return Err("too many values");
        }
        let next = offset(self.nodes.len() + 1);
        self.nodes.push(Node { start: offset(start), end: offset(self.at), next, kind });
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// Narrows an offset; `Parser::document` has checked that the body's length fits.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
