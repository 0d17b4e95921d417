//! What the engine received, for tests: which bytes came under which identity, and how.

use std::collections::VecDeque;

use prompt::{MediaPart, MediaSource};
use serde::Serialize;

/// One item as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Receipt {
    /// The `uuid`, else the engine's own identity.
    pub(crate) identity: String,
    /// Whether the identity is the request's.
    pub(crate) given: bool,
    /// How the bytes came: `data`, `url`, `file`, or `none`.
    pub(crate) by: &'static str,
    /// How many they are.
    pub(crate) bytes: usize,
    /// Their media id as a router computes it; empty without bytes.
    pub(crate) media_id: String,
}

/// The last items.
#[derive(Debug)]
pub(crate) struct Receipts {
    items_max: usize,
    items: VecDeque<Receipt>,
}

impl Receipts {
    pub(crate) const fn new(items_max: usize) -> Self {
        Self { items_max, items: VecDeque::new() }
    }

    /// Remembers an item; hashes it only if anything is remembered.
    pub(crate) fn add(&mut self, part: &MediaPart, identity: &str, file: Option<&[u8]>) {
        if self.items_max == 0 {
            return;
        }
        if self.items.len() >= self.items_max {
            self.items.pop_front();
        }
        self.items.push_back(Receipt {
            identity: identity.to_owned(),
            given: part.client_uuid.is_some(),
            by: match &part.source {
                MediaSource::Data(_) => "data",
                MediaSource::Url(_) => "url",
                MediaSource::Local(_) => "file",
                MediaSource::Absent | MediaSource::Opaque => "none",
            },
            bytes: file.map_or(0, <[u8]>::len),
            media_id: file.map_or_else(String::new, |file| prompt::media_id(file).as_str().to_owned()),
        });
    }

    pub(crate) fn all(&self) -> Vec<Receipt> {
        self.items.iter().cloned().collect()
    }
}
