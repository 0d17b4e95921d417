//! The media client against origins that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use adapter_http::{HttpMediaSource, MediaConfig};
use media_probe::AddressPolicy;
use ports::MediaSource;
use ports::media_source::{Begun, Error, Fetch, Fetched, Limits, Unbounded, Validator, Wanted};

use crate::server::Server;

fn source() -> HttpMediaSource {
    HttpMediaSource::new(MediaConfig::new(AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()])))
}

fn fetch(url: String) -> Fetch {
    let limits = Limits { bytes_max: 1000, deadline: Duration::from_millis(500), redirects_max: 3 };
    Fetch { url, known: None, limits }
}

/// Fetches from an origin that answers every connection with a text, and goes on sending `endless` if it is not empty.
async fn answer(head: &'static str, endless: &'static str) -> Result<Fetched, Error> {
    let server = Server::start(move |mut peer| {
        peer.request();
        peer.send(head);
        while !endless.is_empty() && peer.send(endless) {}
        peer.closed();
    });
    source().fetch(fetch(format!("http://{}/i.png", server.address)), &mut Unbounded).await
}

#[tokio::test]
async fn a_resource_comes_with_its_version_and_lifetime() {
    let (seen, request) = channel();
    let server = Server::start(move |mut peer| {
        seen.send(peer.request().unwrap()).unwrap();
        peer.send("HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncache-control: max-age=9\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\nabc");
    });
    let fetched = source()
        .fetch(fetch(format!("http://{}/i.png?q=1#f", server.address)), &mut Unbounded)
        .await
        .unwrap();
    let Fetched::Body { bytes, content_type, validator, freshness } = fetched else { panic!("no body") };
    assert_eq!((&bytes[..], content_type.as_deref()), (&b"abc"[..], Some("image/png")));
    assert_eq!((validator.etag.as_deref(), freshness.fresh_for.as_secs()), (Some("\"v1\""), 9));
    let seen = request.recv().unwrap();
    assert_eq!(seen.line, "GET /i.png?q=1 HTTP/1.1");
    for absent in ["authorization", "cookie", "if-none-match", "referer"] {
        assert_eq!(seen.header(absent), None);
    }
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn a_known_version_is_confirmed() {
    let server = Server::start(|mut peer| {
        let known = peer.request().unwrap().header("if-none-match") == Some("\"v1\"");
        let status = if known { "304 Not Modified" } else { "500 Unexpected" };
        peer.send(&format!("HTTP/1.1 {status}\r\ncache-control: max-age=5\r\n\r\n"));
    });
    let mut fetch = fetch(format!("http://{}/", server.address));
    fetch.known = Some(Validator { etag: Some("\"v1\"".to_owned()), last_modified: None });
    let fetched = source().fetch(fetch, &mut Unbounded).await.unwrap();
    assert!(matches!(fetched, Fetched::NotModified { freshness } if freshness.fresh_for.as_secs() == 5));
}

#[tokio::test]
async fn hostile_origins_are_bounded() {
    let too_large = Error::TooLarge { bytes_max: 1000 };
    let claims = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    assert_eq!(answer(claims, "").await, Err(too_large.clone()));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(answer(chunked, "8\r\n01234567\r\n").await, Err(too_large.clone()));
    assert_eq!(answer("HTTP/1.1 200 OK\r\n\r\n", "01234567").await, Err(too_large));

    let timeout = Error::Timeout { deadline: Duration::from_millis(500) };
    assert_eq!(answer("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", "").await, Err(timeout.clone()));
    assert_eq!(answer("HTTP/1.1 200 O", "").await, Err(timeout));

    let bomb = answer("HTTP/1.1 200 OK\r\n", "x-bomb: 0123456789012345678901234567890123456789\r\n").await;
    assert!(matches!(bomb, Err(Error::Unreachable { .. })), "{bomb:?}");
    for encoding in ["gzip", "BR", "identity, gzip"] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: 3\r\n\r\nabc");
        let packed = answer(head.leak(), "").await;
        assert_eq!(packed, Err(Error::Encoded { encoding: encoding.to_lowercase() }));
    }
    let nonsense = answer("SSH-2.0-OpenSSH_9.2\r\n", "").await;
    assert!(matches!(nonsense, Err(Error::Unreachable { .. })), "{nonsense:?}");
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_no_body() {
    let server = Server::start(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
    });
    let fetched = source().fetch(fetch(format!("http://{}/", server.address)), &mut Unbounded).await;
    assert!(matches!(fetched, Err(Error::Unreachable { .. })), "{fetched:?}");
}

#[tokio::test]
async fn redirects_are_followed_and_bounded() {
    let server = Server::start(|mut peer| {
        let line = peer.request().unwrap().line;
        let target = match line.split(' ').nth(1).unwrap() {
            "/a" => "b",
            "/b" => "/c?x",
            "/c?x" => {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!");
                return;
            }
            _ => "/loop",
        };
        peer.send(&format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"));
    });
    let url = |path| format!("http://{}{path}", server.address);
    assert!(source().fetch(fetch(url("/a")), &mut Unbounded).await.is_ok());
    let before = server.accepted();
    assert_eq!(
        source().fetch(fetch(url("/loop")), &mut Unbounded).await,
        Err(Error::Redirects { redirects_max: 3 })
    );
    assert_eq!(server.accepted() - before, 4);
    assert_eq!(answer("HTTP/1.1 301 Moved\r\n\r\n", "").await, Err(Error::Redirects { redirects_max: 3 }));
    let elsewhere = answer("HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\n\r\n", "").await;
    assert_eq!(elsewhere, Err(Error::Scheme { scheme: "file".to_owned() }));
    assert_eq!(answer("HTTP/1.1 404 Not Found\r\n\r\n", "").await, Err(Error::Status { status: 404 }));
}

#[tokio::test]
async fn fetches_from_one_host_are_limited() {
    let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::clone(&active), Arc::clone(&most));
    let server = Server::start(move |mut peer| {
        peer.request();
        peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Long enough for others to pile up if they may.
        std::thread::sleep(Duration::from_millis(20));
        running.fetch_sub(1, Ordering::SeqCst);
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!");
    });
    let mut config = MediaConfig::new(AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]));
    config.fetches_per_host_max = 2;
    let source = HttpMediaSource::new(config);
    let url = format!("http://{}/", server.address);
    let all = (0..8).map(async |_| {
        let mut fetch = fetch(url.clone());
        fetch.limits.deadline = Duration::from_secs(10);
        source.fetch(fetch, &mut Unbounded).await
    });
    let outcomes = futures::future::join_all(all).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!((most.load(Ordering::SeqCst), server.accepted()), (2, 8));
}

#[tokio::test]
async fn origins_without_ranges_are_read_no_further_than_wanted() {
    let (sent, bytes_sent) = channel();
    let server = Server::start(move |mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n");
        let piece = "0123456789abcdef".repeat(1 << 10);
        let mut bytes = 0_usize;
        while peer.send(&piece) {
            bytes += piece.len();
        }
        sent.send(bytes).unwrap();
    });
    let mut fetch = fetch(format!("http://{}/", server.address));
    fetch.limits.bytes_max = 32 << 20;
    fetch.limits.deadline = Duration::from_secs(10);
    let wanted = Wanted::new(|beginning, _| (beginning.len() < 100).then_some(100));
    let begun = source().begin(fetch, wanted).await.unwrap();
    let Begun::Beginning { bytes, whole, .. } = begun else { panic!("no beginning") };
    assert!(bytes.starts_with(b"0123456789abcdef0123") && !whole, "{} bytes", bytes.len());
    // What the sockets' buffers took, and nothing near the whole.
    assert!(bytes_sent.recv_timeout(Duration::from_secs(10)).unwrap() < 64 << 20);
}

#[tokio::test]
async fn parts_of_different_versions_are_not_joined() {
    let server = Server::start(|mut peer| {
        let range = peer.request().unwrap().header("range").unwrap().to_owned();
        let (from, etag) = if range.starts_with("bytes=0-") { (0, "one") } else { (16_384, "two") };
        let to = if from == 0 { 16_384 } else { 65_536 };
        let head = format!("content-range: bytes {from}-{}/1000000\r\netag: \"{etag}\"", to - 1);
        let text = "x".repeat(to - from);
        peer.send(&format!("HTTP/1.1 206 Partial\r\n{head}\r\ncontent-length: {}\r\n\r\n{text}", to - from));
    });
    let mut fetch = fetch(format!("http://{}/", server.address));
    fetch.limits.bytes_max = 1 << 20;
    let wanted = Wanted::new(|beginning, _| (beginning.len() < 20_000).then_some(20_000));
    let begun = source().begin(fetch, wanted).await;
    assert!(
        matches!(&begun, Err(Error::Unreachable { reason, .. }) if reason.contains("changed")),
        "{begun:?}"
    );
}

#[tokio::test]
async fn an_origin_that_gives_next_to_nothing_is_not_asked_for_ever() {
    let server = Server::start(|mut peer| {
        let range = peer.request().unwrap().header("range").unwrap().to_owned();
        let from = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).unwrap().0;
        let head = format!("content-range: bytes {from}-{from}/1000000");
        peer.send(&format!("HTTP/1.1 206 Partial\r\n{head}\r\ncontent-length: 1\r\n\r\nx"));
    });
    let mut fetch = fetch(format!("http://{}/", server.address));
    fetch.limits.bytes_max = 1 << 20;
    let wanted = Wanted::new(|beginning, _| (beginning.len() < 100).then_some(100));
    let Begun::Beginning { bytes, whole, .. } = source().begin(fetch, wanted).await.unwrap() else {
        panic!("no beginning")
    };
    assert_eq!((&bytes[..], whole, server.accepted()), (&b"x".repeat(16)[..], false, 16));
}

#[test]
fn urls_are_judged_without_asking_anybody() {
    let source = HttpMediaSource::new(MediaConfig::new(AddressPolicy::new(Vec::new())));
    for refused in [
        "http://127.0.0.1/",
        "http://0x7f000001/",
        "http://[::ffff:169.254.169.254]/",
        "http://localhost:8000/",
        "http://a.LOCALHOST./",
        "http://u:p@origin.example/",
        "file:///etc/passwd",
    ] {
        assert!(source.check(refused).is_err_and(|error| error.refuses()), "{refused}");
    }
    for taken in ["http://origin.example/i.png", "https://93.184.215.14/", "http://localhost.example/"] {
        assert_eq!(source.check(taken), Ok(()), "{taken}");
    }
}
