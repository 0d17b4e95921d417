//! Reads a resource's beginning: by ranges that grow, or the start of the whole where the origin knows no ranges.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use ports::media_source::{Begun, Error, Fetch, Validator, Wanted};

use super::target::Target;
use super::{HttpMediaSource, Opened, caching, text, validator};

/// Lengths of a beginning, growing; past the last one everything is asked for.
const STEPS: [u64; 3] = [16 << 10, 64 << 10, 256 << 10];
/// Parts that a beginning is read in at most: an origin may give less than was asked for, but each costs a connection.
const PARTS_MAX: usize = 16;
/// Bytes of a whole answer that come at least between two looks at it.
const LOOK_BYTES: u64 = 4 << 10;

/// Bytes `from..to` of a resource.
#[derive(Debug)]
pub(super) struct Part {
    from: u64,
    to: u64,
    /// The version that the bytes before them are of, where it has a name that proves it.
    version: Option<String>,
}

impl Part {
    /// Tells whether it begins the resource.
    pub(super) const fn is_first(&self) -> bool {
        self.from == 0
    }

    /// Asks for it: of another version than that of the bytes before, everything comes.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        let range = format!("bytes={}-{}", self.from, self.to.saturating_sub(1));
        headers.extend(HeaderValue::from_str(&range).ok().map(|range| (header::RANGE, range)));
        let version = self.version.as_ref().filter(|_| !self.is_first());
        let version = version.and_then(|version| HeaderValue::from_str(version).ok());
        headers.extend(version.map(|version| (header::IF_RANGE, version)));
    }
}

/// The beginning as far as it has been read.
#[derive(Debug, Default)]
struct Reading {
    bytes: BytesMut,
    /// How many parts brought them.
    parts: usize,
    /// Length of the resource, where the origin has told it.
    total: Option<u64>,
    validator: Validator,
}

impl Reading {
    fn len(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
    }
}

impl HttpMediaSource {
    pub(super) async fn read_beginning(&self, fetch: &Fetch, wanted: &Wanted) -> Result<Begun, Error> {
        let bytes_max = fetch.limits.bytes_max;
        let mut reading = Reading::default();
        let mut target = Target::parse(&fetch.url)?;
        let mut want = 1;
        loop {
            let step = STEPS.into_iter().find(|step| *step >= want).unwrap_or(bytes_max).min(bytes_max);
            let part = Part { from: reading.len(), to: step, version: version(&reading.validator) };
            let opened = self.open(target, fetch, Some(&part)).await?;
            let headers = opened.response.headers();
            let (freshness, content_type) =
                (caching::freshness(headers), text(headers, &header::CONTENT_TYPE));
            let begun = |reading: Reading, whole| Begun::Beginning {
                bytes: Bytes::from(reading.bytes),
                whole,
                content_type: content_type.clone(),
                validator: reading.validator,
                freshness,
            };
            match opened.response.status() {
                StatusCode::NOT_MODIFIED if fetch.known.is_some() && part.is_first() => {
                    return Ok(Begun::NotModified { freshness });
                }
                StatusCode::PARTIAL_CONTENT => target = take_part(opened, &part, &mut reading).await?,
                StatusCode::OK => {
                    let mut reading = Reading { validator: validator(headers), ..Reading::default() };
                    let whole = take_start(opened, bytes_max, wanted, &mut reading).await?;
                    return Ok(begun(reading, whole));
                }
                status => return Err(Error::Status { status: status.as_u16() }),
            }
            let whole = reading.total == Some(reading.len());
            let grown = reading.len() > part.from;
            match wanted.more(&reading.bytes, whole) {
                Some(more) if !whole && grown && reading.parts < PARTS_MAX && reading.len() < bytes_max => {
                    want = more.max(reading.len() + 1);
                }
                Some(_) | None => return Ok(begun(reading, whole)),
            }
        }
    }
}

/// Reads a part that the origin gave as such, and returns who gave it.
async fn take_part(opened: Opened, part: &Part, reading: &mut Reading) -> Result<Target, Error> {
    let Opened { target, response, _permit } = opened;
    let broken =
        |reason: &str| Error::Unreachable { host: target.host().to_owned(), reason: reason.to_owned() };
    let (head, mut streaming) = response.into_parts();
    let (from, total) =
        text(&head.headers, &header::CONTENT_RANGE).as_deref().and_then(content_range).unzip();
    if from != Some(part.from) {
        return Err(broken("it gave another range than the one asked for"));
    }
    let (total, validator) = (total.flatten(), validator(&head.headers));
    if !part.is_first() && (validator != reading.validator || total != reading.total) {
        return Err(broken("the resource changed while it was read"));
    }
    (reading.total, reading.validator) = (total, validator);
    reading.parts += 1;
    while let Some(frame) = streaming.frame().await {
        let frame = frame.map_err(|failed| broken(&failed.reason))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = usize::try_from(part.to.saturating_sub(reading.len())).unwrap_or(usize::MAX);
        if data.len() > room {
            return Err(broken("it gave more than the range asked for"));
        }
        reading.bytes.extend_from_slice(&data);
    }
    Ok(target)
}

/// Reads of a whole answer no more than is wanted; returns whether that was all of it.
async fn take_start(
    opened: Opened,
    bytes_max: u64,
    wanted: &Wanted,
    reading: &mut Reading,
) -> Result<bool, Error> {
    let Opened { target, response, _permit } = opened;
    let mut streaming = response.into_body();
    let mut look_at = 1;
    while let Some(frame) = streaming.frame().await {
        let broken = |failed: crate::connection::Failed| Error::Unreachable {
            host: target.host().to_owned(),
            reason: failed.reason,
        };
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let room = usize::try_from(bytes_max.saturating_sub(reading.len())).unwrap_or(usize::MAX);
        reading.bytes.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() > room {
            return Ok(false);
        }
        if reading.len() >= look_at {
            let Some(more) = wanted.more(&reading.bytes, false) else { return Ok(streaming.is_end_stream()) };
            look_at = next_look(reading.len(), more);
        }
    }
    Ok(true)
}

/// Says at which length to look again. A look may go over all that is there: they become rarer as that grows, so that all
/// together cost a few times what the last one does.
fn next_look(len: u64, more: u64) -> u64 {
    more.max(len + LOOK_BYTES.max(len / 4))
}

/// Names a version so that `If-Range` takes it: by a strong `ETag` only.
fn version(validator: &Validator) -> Option<String> {
    validator.etag.clone().filter(|etag| etag.starts_with('"'))
}

/// Reads `bytes FROM-TO/TOTAL`: the first byte's place, and the length if it is told.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.trim().parse().ok()?, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_beginning_is_looked_at_less_and_less() {
        let looks = std::iter::successors(Some(LOOK_BYTES), |len| Some(next_look(*len, len + 1)));
        let looks: Vec<u64> = looks.take_while(|len| *len <= 1 << 20).collect();
        assert_eq!(looks.get(..3), Some(&[4096, 8192, 12_288][..]));
        assert!(looks.iter().sum::<u64>() < 6 << 20, "{looks:?}");
        assert_eq!(next_look(4096, 1 << 20), 1 << 20);
    }

    #[test]
    fn ranges_are_read() {
        for (text, expected) in [
            ("bytes 0-16383/20000", Some((0, Some(20_000)))),
            ("bytes 16384-19999/*", Some((16_384, None))),
            ("bytes */20000", None),
            ("items 0-1/2", None),
            ("", None),
        ] {
            assert_eq!(content_range(text), expected, "{text:?}");
        }
    }
}
