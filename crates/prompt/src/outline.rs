//! A body with gaps where the URLs of media stand: what is put there depends on the worker, the rest does not.

use bytes::Bytes;

use crate::json;

/// A request's body, but for the URLs of some of its media; shares the original's memory and is cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Text(Bytes),
    Gap(Gap),
}

/// A place for a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Index among the request's media.
    pub(crate) index: usize,
    /// The client's value, quotes included.
    pub(crate) original: Bytes,
    /// What stands around a URL put there.
    pub(crate) around: (&'static [u8], &'static [u8]),
}

impl Outline {
    /// Makes an outline without gaps.
    #[must_use]
    pub fn whole(body: Bytes) -> Self {
        if body.is_empty() { Self::default() } else { Self { segments: vec![Segment::Text(body)] } }
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    /// Tells whether the body is the same for all workers.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Text(_)))
    }

    /// Emits the body, with the URL that `url` gives for each media index; where it gives none, what the client sent.
    ///
    /// URLs are taken as they are and must need no JSON escapes beyond those of `"` and `\`.
    #[must_use]
    pub fn fill(&self, mut url: impl FnMut(usize) -> Option<Bytes>) -> Vec<Bytes> {
        let mut chunks = Vec::with_capacity(self.segments.len() * 3);
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => chunks.push(text.clone()),
                Segment::Gap(gap) => match url(gap.index) {
                    Some(url) => {
                        let (open, close) = gap.around;
                        chunks.extend([Bytes::from_static(open), escaped(&url), Bytes::from_static(close)]);
                    }
                    None => chunks.push(gap.original.clone()),
                },
            }
        }
        chunks
    }
}

/// Quotes a text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
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
    if json::is_plain(url) {
        return url.clone();
    }
    let quoted = quote(&String::from_utf8_lossy(url));
    let quoted = Bytes::from(quoted);
    quoted.slice(1..quoted.len() - 1)
}
