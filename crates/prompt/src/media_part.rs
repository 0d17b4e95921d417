//! The media parts of a chat request, found where engines find them.

use bytes::Bytes;

use crate::data_uri::DataUri;
use crate::error::{Error, MediaFault};
use crate::json::{Json, Kind};

/// What a media part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A video.
    Video,
    /// A sound.
    Audio,
    /// Embeddings computed by the client.
    Embeds,
}

impl MediaKind {
    /// Returns the kind's name, as reports spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Embeds => "embeds",
        }
    }
}

/// Where an item's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaSource {
    /// In the body, as a data URI.
    Data(DataUri),
    /// Behind an http or https URL.
    Url(String),
    /// Behind a file URL: on the engine's own disk.
    Local(String),
    /// Nowhere: only the client's uuid names the item.
    Absent,
    /// In the body in a form the router doesn't read (raw audio, embeddings).
    Opaque,
}

/// One media item of a request.
#[derive(Clone, Debug)]
pub struct MediaPart {
    /// Index among the request's media, from 0, in order of appearance.
    pub index: usize,
    /// What the item is.
    pub kind: MediaKind,
    /// Where its bytes are.
    pub source: MediaSource,
    /// The client's own name for the item; never empty.
    pub client_uuid: Option<String>,
    /// Index of the message, and of the part in its content.
    pub(crate) place: (usize, usize),
    pub(crate) nodes: Nodes,
}

/// Positions of a part's values in the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    /// The part itself.
    pub(crate) part: u32,
    /// The member that holds the URL, an object or the URL itself.
    pub(crate) holder: Option<u32>,
    /// The URL's string, or the null in its place.
    pub(crate) url: Option<u32>,
    /// The uuid's value.
    pub(crate) uuid: Option<u32>,
}

impl MediaPart {
    /// Returns the part's path in the body.
    #[must_use]
    pub fn param(&self) -> String {
        let (message, part) = self.place;
        format!("messages[{message}].content[{part}]")
    }

    /// Makes the error that this item's fault is to the client.
    #[must_use]
    pub fn fault(&self, fault: MediaFault) -> Error {
        Error::Media { index: self.index, param: self.param(), fault }
    }
}

/// The members that mark a part as media, in the order in which engines look for them.
const MEMBERS: [(&str, MediaKind); 8] = [
    ("image_url", MediaKind::Image),
    ("image_embeds", MediaKind::Embeds),
    ("audio_embeds", MediaKind::Embeds),
    ("video_embeds", MediaKind::Embeds),
    ("prompt_embeds", MediaKind::Embeds),
    ("audio_url", MediaKind::Audio),
    ("input_audio", MediaKind::Audio),
    ("video_url", MediaKind::Video),
];

/// Tells how a content part's `type` names media: the member it points to, and what it holds.
pub(crate) fn named(part_type: &str) -> Option<(&'static str, MediaKind)> {
    let member = if part_type == "input_image" { "image_url" } else { part_type };
    MEMBERS.into_iter().find(|(name, _)| *name == member)
}

/// Finds the member by which an untyped part, or one with a uuid, is media.
pub(crate) fn member(part: Json<'_>) -> Option<(&'static str, MediaKind)> {
    MEMBERS.into_iter().find(|(name, _)| part.get(name).is_some())
}

/// Reads a content part as a media item; nothing if it is no media.
pub(crate) fn read(part: Json<'_>, index: usize, place: (usize, usize)) -> Result<Option<MediaPart>, Error> {
    let (message, at) = place;
    let path = |member: &str| format!("messages[{message}].content[{at}].{member}");
    let part_type = part.given("type").and_then(Json::as_str);
    let uuid = part.given("uuid");
    let by_type = part_type.as_deref().and_then(named);
    let found = if uuid.is_none() && part_type.is_some() { by_type } else { member(part) };
    let Some((member, kind)) = found else { return Ok(None) };
    let strict =
        uuid.is_none() && matches!(part_type.as_deref(), Some("image_url" | "audio_url" | "video_url"));
    let holder = part.get(member);
    let url = match holder.map(|holder| (holder.kind(), holder)) {
        None => None,
        Some((Kind::Object, holder)) if member.ends_with("_url") => {
            Some(holder.get("url").ok_or_else(|| Error::Missing { param: path(&format!("{member}.url")) })?)
        }
        Some((Kind::Plain | Kind::Escaped, _)) if strict => {
            return Err(Error::wrong(path(member), "an object with a `url`"));
        }
        Some((Kind::Plain | Kind::Escaped | Kind::Null, holder)) => Some(holder),
        Some((Kind::Object | Kind::Array, _)) if !member.ends_with("_url") => None,
        Some(_) => return Err(Error::wrong(path(member), "an object with a `url`")),
    };
    let nodes = Nodes {
        part: part.position(),
        holder: holder.map(Json::position),
        url: url.map(Json::position),
        uuid: part.get("uuid").map(Json::position),
    };
    let client_uuid =
        uuid.map(|uuid| uuid_text(uuid, &path("uuid"))).transpose()?.filter(|uuid| !uuid.is_empty());
    let mut item = MediaPart { index, kind, source: MediaSource::Opaque, client_uuid, place, nodes };
    if member.ends_with("_url") {
        item.source = source(&item, url, &path(member))?;
    } else if holder.is_none_or(Json::is_null) && item.client_uuid.is_some() {
        item.source = MediaSource::Absent;
    }
    Ok(Some(item))
}

/// Spells a uuid as engines do, which take a number's text.
fn uuid_text(uuid: Json<'_>, path: &str) -> Result<String, Error> {
    let number = uuid.as_number().map(Into::into);
    number.or_else(|| uuid.as_str()).map(Into::into).ok_or_else(|| Error::wrong(path, "a string"))
}

fn source(item: &MediaPart, url: Option<Json<'_>>, path: &str) -> Result<MediaSource, Error> {
    let Some(url) = url.filter(|url| !url.is_null()) else { return absent(item) };
    let text = url.as_shared().ok_or_else(|| Error::wrong(format!("{path}.url"), "a string"))?;
    if text.is_empty() {
        return absent(item);
    }
    if starts_with(&text, b"data:") {
        return DataUri::parse(&text).map(MediaSource::Data).map_err(|fault| item.fault(fault));
    }
    let address = || String::from_utf8_lossy(&text).into_owned();
    if starts_with(&text, b"http://") || starts_with(&text, b"https://") {
        Ok(MediaSource::Url(address()))
    } else if starts_with(&text, b"file:") {
        Ok(MediaSource::Local(address()))
    } else {
        Err(item.fault(MediaFault::Scheme))
    }
}

fn absent(item: &MediaPart) -> Result<MediaSource, Error> {
    if item.client_uuid.is_some() { Ok(MediaSource::Absent) } else { Err(item.fault(MediaFault::Nothing)) }
}

fn starts_with(text: &Bytes, scheme: &[u8]) -> bool {
    text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}
