//! Emits a body with other identities or URLs for some of its media, the rest as it came.

use std::ops::Range;

use bytes::Bytes;

use crate::chat_request::ChatRequest;
use crate::json::Kind;
use crate::media_part::MediaPart;

/// What to change of one media part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaEdit {
    /// Index among the request's media.
    pub index: usize,
    /// The identity to give the engine, in place of the client's if there is one.
    pub uuid: Option<String>,
    /// The URL to put in place of the part's, or where it has none.
    pub url: Option<Bytes>,
}

/// A replacement of a range of the body, by chunks.
struct Splice {
    range: Range<usize>,
    chunks: Vec<Bytes>,
}

impl ChatRequest {
    /// Emits the body with some media parts changed, as chunks that share the original's memory.
    ///
    /// URLs are taken as they are and must need no JSON escapes beyond those of `"` and `\`. Edits of media that are
    /// not there, or that have no URL to replace (raw audio, embeddings), change nothing.
    #[must_use]
    pub fn rewrite(&self, edits: &[MediaEdit]) -> Vec<Bytes> {
        let mut splices: Vec<Splice> = Vec::with_capacity(edits.len() * 2);
        for edit in edits {
            let Some(part) = self.media().get(edit.index) else { continue };
            splices.extend(edit.uuid.as_deref().map(|uuid| self.uuid_splice(part, uuid)));
            splices.extend(edit.url.as_ref().and_then(|url| self.url_splice(part, url)));
        }
        splices.sort_by_key(|splice| splice.range.start);
        let body = self.body();
        let mut chunks = Vec::with_capacity(splices.len() * 4 + 1);
        let mut at = 0;
        for splice in splices {
            if splice.range.start < at {
                continue;
            }
            chunks.push(body.slice(at..splice.range.start));
            at = splice.range.end;
            chunks.extend(splice.chunks);
        }
        chunks.push(body.slice(at..));
        chunks
    }

    fn uuid_splice(&self, part: &MediaPart, uuid: &str) -> Splice {
        let quoted = quote(uuid);
        if let Some(position) = part.nodes.uuid {
            let range = self.document().at(position).span();
            return Splice { range, chunks: vec![Bytes::from(quoted)] };
        }
        let inside = self.document().at(part.nodes.part).span().start + 1;
        let member = format!("\"uuid\":{quoted},");
        Splice { range: inside..inside, chunks: vec![Bytes::from(member)] }
    }

    fn url_splice(&self, part: &MediaPart, url: &Bytes) -> Option<Splice> {
        let target = self.document().at(part.nodes.url?);
        let whole = target.kind() == Kind::Null && part.nodes.holder == part.nodes.url;
        let (open, close): (&'static [u8], &'static [u8]) =
            if whole && self.takes_object(part) { (b"{\"url\":\"", b"\"}") } else { (b"\"", b"\"") };
        let chunks = vec![Bytes::from_static(open), escaped(url), Bytes::from_static(close)];
        Some(Splice { range: target.span(), chunks })
    }

    /// Tells whether the part's URL belongs into an object: everywhere but in `input_image`.
    fn takes_object(&self, part: &MediaPart) -> bool {
        let part_type = self.document().at(part.nodes.part).given("type").and_then(|name| name.as_str());
        part_type.is_none_or(|name| name != "input_image")
    }
}

/// Quotes a text as a JSON string.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\u{1f}' => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a URL ready to stand between quotes; shared when it needs no escapes.
fn escaped(url: &Bytes) -> Bytes {
    if !url.iter().any(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20) {
        return url.clone();
    }
    let quoted = quote(&String::from_utf8_lossy(url));
    let quoted = Bytes::from(quoted);
    quoted.slice(1..quoted.len() - 1)
}
