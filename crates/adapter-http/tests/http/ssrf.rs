//! No spelling of a forbidden address leads to a connection.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use adapter_http::{HttpMediaSource, MediaConfig, Resolver};
use media_probe::AddressPolicy;
use ports::MediaSource;
use ports::media_source::{Error, Fetch, Limits, Unbounded};

use crate::server::Server;

/// Hosts that lead, or may be thought to lead, to this machine or its network.
fn hosts() -> Vec<&'static str> {
    lines(include_str!("../../../../tests/fixtures/ssrf/hosts.txt"))
}

/// Whole URLs that no fetch may follow.
fn urls() -> Vec<&'static str> {
    lines(include_str!("../../../../tests/fixtures/ssrf/urls.txt"))
}

fn lines(text: &'static str) -> Vec<&'static str> {
    text.lines().filter(|line| !line.starts_with("# ")).collect()
}

/// A listener on every address of this machine that only notices connections.
struct Canary {
    listeners: Vec<TcpListener>,
    port: u16,
}

impl Canary {
    fn new() -> Self {
        let first = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let mut listeners = vec![first];
        listeners.extend(TcpListener::bind(("::1", port)));
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        Self { listeners, port }
    }

    fn connections(&self) -> usize {
        let waiting = |listener: &TcpListener| match listener.accept() {
            Ok(_) => 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                0
            }
        };
        self.listeners.iter().map(waiting).sum()
    }
}

fn fetch(url: String) -> Fetch {
    let limits = Limits { deadline: Duration::from_secs(2), ..Limits::default() };
    Fetch { url, known: None, limits }
}

#[tokio::test]
async fn no_spelling_reaches_the_canary() {
    let canary = Canary::new();
    let source = HttpMediaSource::new(MediaConfig::new(AddressPolicy::default()));
    let (hosts, urls) = (hosts(), urls());
    assert!(hosts.len() + urls.len() >= 80, "{} and {}", hosts.len(), urls.len());
    let hosts = hosts.iter().map(|host| format!("http://{host}:{}/i.png", canary.port));
    let tls = ["127.0.0.1", "[::1]"].iter().map(|host| format!("https://{host}:{}/i.png", canary.port));
    let urls = urls.iter().map(|url| url.replace("PORT", &canary.port.to_string()));
    for url in hosts.chain(tls).chain(urls) {
        let outcome = source.fetch(fetch(url.clone()), &mut Unbounded).await;
        let refused = matches!(
            outcome,
            Err(Error::Denied { .. } | Error::Url { .. } | Error::Scheme { .. } | Error::Unresolved { .. })
        );
        assert!(refused, "{url}: {outcome:?}");
        assert_eq!(canary.connections(), 0, "{url}");
    }
}

#[tokio::test]
async fn no_redirect_reaches_the_canary() {
    let canary = Canary::new();
    let port = canary.port;
    // The origin is on an address of its own, which alone is exempted.
    let origin = Server::start_on("127.0.0.2:0", move |mut peer| {
        let line = peer.request().unwrap().line;
        let index: usize = line.split(' ').nth(1).unwrap().trim_start_matches('/').parse().unwrap();
        let (hosts, urls) = (hosts(), urls());
        let target = hosts.get(index).map_or_else(
            || urls[index - hosts.len()].replace("PORT", &port.to_string()),
            |host| format!("http://{host}:{port}/"),
        );
        let target: String = target.chars().filter(char::is_ascii).collect();
        peer.send(&format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"));
    });
    let policy = AddressPolicy::new(vec!["127.0.0.2/32".parse().unwrap()]);
    let source = HttpMediaSource::new(MediaConfig::new(policy));
    for index in 0..hosts().len() + urls().len() {
        let outcome = source.fetch(fetch(format!("http://{}/{index}", origin.address)), &mut Unbounded).await;
        assert!(outcome.is_err(), "{index}: {outcome:?}");
        assert_eq!(canary.connections(), 0, "redirect {index}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_exempted_network_is_reached() {
    let origin = Server::start(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!");
    });
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let source = HttpMediaSource::new(MediaConfig::new(policy));
    for host in ["127.0.0.1", "2130706433", "localhost"] {
        let url = format!("http://{host}:{}/", origin.address.port());
        assert!(source.fetch(fetch(url), &mut Unbounded).await.is_ok(), "{host}");
    }
}

/// A resolver that answers what a script says, in turn; its last answer again and again.
fn resolver(answers: Vec<Vec<SocketAddr>>) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let resolver = Resolver::new(move |_, _| {
        let index = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        Ok(answers.get(index).cloned().unwrap_or_default())
    });
    (resolver, asked)
}

#[tokio::test]
async fn a_name_that_rebinds_reaches_only_what_was_checked() {
    let canary = Canary::new();
    // The origin is on an address of its own, which alone is exempted.
    let origin = Server::start_on("127.0.0.2:0", |mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!");
    });
    let public = origin.address;
    let private = SocketAddr::from(([127, 0, 0, 1], canary.port));
    let source = |answers| {
        let policy = AddressPolicy::new(vec!["127.0.0.2/32".parse().unwrap()]);
        let (resolver, asked) = resolver(answers);
        let config = MediaConfig { resolver, ..MediaConfig::new(policy) };
        (HttpMediaSource::new(config), asked)
    };
    let url = || "http://rebinding.example/i.png".to_owned();
    // What was checked is what is connected to: the name is asked for once, and anew for the next fetch.
    let (rebinding, asked) = source(vec![vec![public], vec![private]]);
    assert!(rebinding.fetch(fetch(url()), &mut Unbounded).await.is_ok());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let second = rebinding.fetch(fetch(url()), &mut Unbounded).await;
    assert!(matches!(second, Err(Error::Denied { .. })), "{second:?}");
    // Of several addresses only those that are allowed.
    let (mixed, _) = source(vec![vec![private, public, private]]);
    assert!(mixed.fetch(fetch(url()), &mut Unbounded).await.is_ok());
    let (private_only, _) = source(vec![vec![private]]);
    assert!(matches!(private_only.fetch(fetch(url()), &mut Unbounded).await, Err(Error::Denied { .. })));
    assert_eq!(canary.connections(), 0);
}
