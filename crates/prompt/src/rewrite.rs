//! Emits a body with another salt, other identities for some of its media and gaps for their URLs, the rest as it came.

use std::ops::Range;

use bytes::Bytes;

use crate::chat_request::ChatRequest;
use crate::completion_request::CompletionRequest;
use crate::error::Error;
use crate::json::{Json, Kind};
use crate::media_part::MediaPart;
use crate::outline::{Gap, Outline, Segment, quote};

/// What to change of one media part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaEdit {
    /// Index among the request's media.
    pub index: usize,
    /// The identity to give the engine, in place of the client's if there is one.
    pub uuid: Option<String>,
    /// Whether the client's own identity for the item, if it gives one, is taken away: the engine makes its own.
    pub unnames: bool,
    /// Whether another URL is to be put in place of the part's, or where it has none.
    pub replaces_url: bool,
}

/// A replacement of a range of the body.
struct Splice {
    range: Range<usize>,
    segment: Segment,
}

impl ChatRequest {
    /// Outlines the body with some media parts changed; it shares the original's memory.
    ///
    /// Edits of media that are not there, or that have no URL to replace (raw audio, embeddings), change nothing.
    #[must_use]
    pub fn outline(&self, edits: &[MediaEdit]) -> Outline {
        spliced(self.body(), self.media_splices(edits))
    }

    /// Does the same, and sets the body's `cache_salt`.
    ///
    /// # Errors
    /// The client gives more than one salt: an engine would take the one that is not seen here.
    pub fn outline_salted(&self, edits: &[MediaEdit], salt: &str) -> Result<Outline, Error> {
        let mut splices = self.media_splices(edits);
        splices.push(SaltPlace::find(self.document().root())?.splice(salt));
        Ok(spliced(self.body(), splices))
    }

    fn media_splices(&self, edits: &[MediaEdit]) -> Vec<Splice> {
        let mut splices: Vec<Splice> = Vec::with_capacity(edits.len() * 2);
        for edit in edits {
            let Some(part) = self.media().get(edit.index) else { continue };
            splices.extend(edit.uuid.as_deref().map(|uuid| self.uuid_splice(part, uuid)));
            splices.extend(edit.unnames.then(|| self.uuid_removal(part)).flatten());
            splices.extend(edit.replaces_url.then(|| self.url_splice(part)).flatten());
        }
        splices
    }

    fn uuid_splice(&self, part: &MediaPart, uuid: &str) -> Splice {
        let quoted = quote(uuid);
        if let Some(position) = part.nodes.uuid {
            let range = self.document().at(position).span();
            return Splice { range, segment: Segment::Text(Bytes::from(quoted)) };
        }
        let inside = self.document().at(part.nodes.part).span().start + 1;
        let member = format!("\"uuid\":{quoted},");
        Splice { range: inside..inside, segment: Segment::Text(Bytes::from(member)) }
    }

    /// Takes away what stands as the part's identity. An empty text would be an identity to engines, null is none.
    fn uuid_removal(&self, part: &MediaPart) -> Option<Splice> {
        let range = self.document().at(part.nodes.uuid?).span();
        Some(Splice { range, segment: Segment::Text(Bytes::from_static(b"null")) })
    }

    fn url_splice(&self, part: &MediaPart) -> Option<Splice> {
        let target = self.document().at(part.nodes.url?);
        let whole = target.kind() == Kind::Null && part.nodes.holder == part.nodes.url;
        let around: (&'static [u8], &'static [u8]) =
            if whole && self.takes_object(part) { (b"{\"url\":\"", b"\"}") } else { (b"\"", b"\"") };
        let range = target.span();
        let original = self.body().slice(range.clone());
        Some(Splice { range, segment: Segment::Gap(Gap { index: part.index, original, around }) })
    }

    /// Tells whether the part's URL belongs into an object: everywhere but in `input_image`.
    fn takes_object(&self, part: &MediaPart) -> bool {
        let part_type = self.document().at(part.nodes.part).given("type").and_then(|name| name.as_str());
        part_type.is_none_or(|name| name != "input_image")
    }
}

impl CompletionRequest {
    /// Outlines the body with another `cache_salt`; it shares the original's memory.
    ///
    /// # Errors
    /// As of [`ChatRequest::outline_salted`].
    pub fn outline_salted(&self, salt: &str) -> Result<Outline, Error> {
        let place = self.salt_place().map_err(Clone::clone)?;
        Ok(spliced(self.body(), vec![place.splice(salt)]))
    }
}

/// Where a body's `cache_salt` stands, or could stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaltPlace {
    range: Range<usize>,
    given: bool,
}

impl SaltPlace {
    /// Looks through the body's own members.
    pub(crate) fn find(root: Json<'_>) -> Result<Self, Error> {
        let mut places =
            root.members().filter(|(name, _)| name == "cache_salt").map(|(_, value)| value.span());
        let start = root.span().start + 1;
        match (places.next(), places.next()) {
            (None, _) => Ok(Self { range: start..start, given: false }),
            (Some(range), None) => Ok(Self { range, given: true }),
            (Some(_), Some(_)) => Err(Error::refused("cache_salt", "must be given once")),
        }
    }

    /// Bodies are never empty objects here, so a member put first is followed by another.
    fn splice(&self, salt: &str) -> Splice {
        let quoted = quote(salt);
        let text = if self.given { quoted } else { format!("\"cache_salt\":{quoted},") };
        Splice { range: self.range.clone(), segment: Segment::Text(Bytes::from(text)) }
    }
}

/// Puts splices into a body, in order; of two that overlap the first.
fn spliced(body: &Bytes, mut splices: Vec<Splice>) -> Outline {
    splices.sort_by_key(|splice| splice.range.start);
    let mut outline = Outline::default();
    let mut at = 0;
    for splice in splices {
        if splice.range.start < at {
            continue;
        }
        outline.push(Segment::Text(body.slice(at..splice.range.start)));
        at = splice.range.end;
        outline.push(splice.segment);
    }
    outline.push(Segment::Text(body.slice(at..)));
    outline
}
