//! The media client: fetches from origins that nobody vouches for.

mod beginning;
mod caching;
mod hosts;
mod names;
mod target;

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use media_probe::AddressPolicy;
use ports::MediaSource;
use ports::media_source::{Begun, Error, Fetch, Fetched, Limits, Room, Validator, Wanted};
use url::Url;

use self::beginning::Part;
use self::hosts::{Hosts, Permit};
use self::names::Names;
pub use self::names::Resolver;
use self::target::Target;
use crate::authorities::Authorities;
use crate::chunks::Chunks;
use crate::connection::{Connection, Streaming};
use crate::transport::Dialer;

/// Bounds of the media client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which addresses may be connected to.
    pub policy: AddressPolicy,
    /// Fetches at once, in all.
    pub fetches_max: usize,
    /// Fetches at once from one host.
    pub fetches_per_host_max: usize,
    /// Longest time to connect to one address, TLS included.
    pub connect: Duration,
    /// Whom to trust beside the system's authorities.
    pub authorities: Authorities,
    /// Who knows the addresses of names.
    pub resolver: Resolver,
}

impl Config {
    /// Makes the default bounds around a policy.
    #[must_use]
    pub fn new(policy: AddressPolicy) -> Self {
        Self {
            policy,
            fetches_max: 256,
            fetches_per_host_max: 32,
            connect: Duration::from_secs(3),
            authorities: Authorities::default(),
            resolver: Resolver::default(),
        }
    }
}

/// Fetches media by HTTP, connecting only to addresses that were checked.
#[derive(Debug)]
pub struct HttpMediaSource {
    config: Config,
    dialer: Dialer,
    hosts: Hosts,
    names: Names,
}

/// What one hop of a fetch led to.
enum Hop {
    Redirect(Url),
    Opened(Response<Streaming>, Permit),
}

/// An answer that has begun, and who gives it.
struct Opened {
    target: Target,
    response: Response<Streaming>,
    /// The fetch's place among those that run.
    _permit: Permit,
}

impl HttpMediaSource {
    /// Makes a client.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let hosts = Hosts::new(config.fetches_max, config.fetches_per_host_max);
        let dialer = Dialer::new(config.authorities.clone());
        let names = Names::new(config.resolver.clone(), LOOKUPS_MAX);
        Self { config, dialer, hosts, names }
    }

    async fn follow(&self, fetch: &Fetch, room: &mut dyn Room) -> Result<Fetched, Error> {
        let opened = self.open(Target::parse(&fetch.url)?, fetch, None).await?;
        let freshness = caching::freshness(opened.response.headers());
        match opened.response.status() {
            StatusCode::OK => body(opened, fetch.limits, room).await,
            StatusCode::NOT_MODIFIED if fetch.known.is_some() => Ok(Fetched::NotModified { freshness }),
            status => Err(Error::Status { status: status.as_u16() }),
        }
    }

    /// Asks for a resource, or a part of it, and follows redirects to who has it.
    async fn open(&self, first: Target, fetch: &Fetch, part: Option<&Part>) -> Result<Opened, Error> {
        let mut target = first;
        for _ in 0..=fetch.limits.redirects_max {
            match self.hop(&target, fetch, part).await? {
                Hop::Opened(response, _permit) => return Ok(Opened { target, response, _permit }),
                Hop::Redirect(url) => target = Target::check(url)?,
            }
        }
        Err(Error::Redirects { redirects_max: fetch.limits.redirects_max })
    }

    async fn hop(&self, target: &Target, fetch: &Fetch, part: Option<&Part>) -> Result<Hop, Error> {
        let permit = self.hosts.enter(target.host()).await;
        let addresses = target.addresses(&self.config.policy, &self.names).await?;
        let connection = self.connect(target, &addresses).await?;
        let mut request = request(target, fetch.known.as_ref().filter(|_| part.is_none_or(Part::is_first)))?;
        if let Some(part) = part {
            part.ask(request.headers_mut());
        }
        let response = connection
            .exchange(request)
            .await
            .map_err(|failed| Error::Unreachable { host: target.host().to_owned(), reason: failed.reason })?;
        match response.status() {
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {
                let location = response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
                let url = location.and_then(|location| target.join(location));
                url.map(Hop::Redirect).ok_or(Error::Redirects { redirects_max: fetch.limits.redirects_max })
            }
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => match encoding(response.headers()) {
                Some(encoding) => Err(Error::Encoded { encoding }),
                None => Ok(Hop::Opened(response, permit)),
            },
            _ => Ok(Hop::Opened(response, permit)),
        }
    }

    /// Connects to one of the checked addresses, and to nothing else.
    async fn connect(&self, target: &Target, addresses: &[SocketAddr]) -> Result<Connection, Error> {
        let unreachable = |reason: String| Error::Unreachable { host: target.host().to_owned(), reason };
        let mut last = "no address".to_owned();
        for address in addresses.iter().take(ADDRESSES_MAX) {
            let dialing = self.dialer.dial(*address, target.tls_name());
            match tokio::time::timeout(self.config.connect, dialing).await {
                Ok(Ok(transport)) => {
                    let started = Connection::start(transport, HEAD_BYTES_MAX).await;
                    return started.map_err(|failed| unreachable(failed.reason));
                }
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "connecting took too long".to_owned(),
            }
        }
        Err(unreachable(last))
    }
}

/// Names looked up at once.
const LOOKUPS_MAX: usize = 32;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 3;
/// Largest response head of an origin, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most bytes set aside on the word of a `content-length`.
const PREALLOCATED_MAX: u64 = 1 << 20;

/// Builds the request: nothing of the client's request goes along.
fn request(target: &Target, known: Option<&Validator>) -> Result<Request<Chunks>, Error> {
    let mut request = Request::new(Chunks::new(Vec::new()));
    *request.uri_mut() =
        target.path().parse().map_err(|_| Error::Url { reason: "path is no request target".to_owned() })?;
    let mut headers = HeaderMap::with_capacity(8);
    let host = HeaderValue::from_str(&target.authority())
        .map_err(|_| Error::Url { reason: "host is no header value".to_owned() })?;
    headers.insert(header::HOST, host);
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sightline"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("image/*,*/*;q=0.5"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(known) = known {
        let texts = [
            (header::IF_NONE_MATCH, known.etag.as_ref()),
            (header::IF_MODIFIED_SINCE, known.last_modified.as_ref()),
        ];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                headers.insert(name, value);
            }
        }
    }
    *request.headers_mut() = headers;
    Ok(request)
}

/// Returns how a body is encoded, where it is; it was asked for as it is, and is not unpacked.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let named = encodings.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase());
    named
        .filter(|name| !name.is_empty() && name != "identity")
        .map(|name| name.chars().take(32).collect())
        .next()
}

/// Reads the body whole, up to the limit and while there is room, whatever its head promised.
async fn body(opened: Opened, limits: Limits, room: &mut dyn Room) -> Result<Fetched, Error> {
    let Opened { target, response, _permit } = opened;
    let (head, mut streaming) = response.into_parts();
    let too_large = Error::TooLarge { bytes_max: limits.bytes_max };
    let announced = streaming.size_hint().lower();
    if announced > limits.bytes_max {
        return Err(too_large);
    }
    let bytes_max = usize::try_from(limits.bytes_max).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(usize::try_from(announced.min(PREALLOCATED_MAX)).unwrap_or(0));
    while let Some(frame) = streaming.frame().await {
        let frame = frame
            .map_err(|failed| Error::Unreachable { host: target.host().to_owned(), reason: failed.reason })?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > bytes_max - bytes.len() {
            return Err(too_large);
        }
        room.grow(u64::try_from(data.len()).unwrap_or(u64::MAX))?;
        bytes.extend_from_slice(&data);
    }
    Ok(Fetched::Body {
        bytes: Bytes::from(bytes),
        content_type: text(&head.headers, &header::CONTENT_TYPE),
        validator: validator(&head.headers),
        freshness: caching::freshness(&head.headers),
    })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn validator(headers: &HeaderMap) -> Validator {
    Validator { etag: text(headers, &header::ETAG), last_modified: text(headers, &header::LAST_MODIFIED) }
}

#[async_trait]
impl MediaSource for HttpMediaSource {
    async fn fetch(&self, fetch: Fetch, room: &mut dyn Room) -> Result<Fetched, Error> {
        let deadline = fetch.limits.deadline;
        match tokio::time::timeout(deadline, self.follow(&fetch, room)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(Error::Timeout { deadline }),
        }
    }

    async fn begin(&self, fetch: Fetch, wanted: Wanted) -> Result<Begun, Error> {
        let deadline = fetch.limits.deadline;
        match tokio::time::timeout(deadline, self.read_beginning(&fetch, &wanted)).await {
            Ok(begun) => begun,
            Err(_) => Err(Error::Timeout { deadline }),
        }
    }

    fn check(&self, url: &str) -> Result<(), Error> {
        Target::parse(url)?.check_literal(&self.config.policy)
    }
}
