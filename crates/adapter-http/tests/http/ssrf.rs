//! No spelling of a forbidden address leads to a connection.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

use adapter_http::{HttpMediaSource, MediaConfig};
use media_probe::AddressPolicy;
use ports::MediaSource;
use ports::media_source::{Error, Fetch, Limits};

use crate::server::Server;

/// Hosts that lead, or may be thought to lead, to this machine or its network.
const HOSTS: [&str; 67] = [
    // Loopback, as inet_aton and browsers spell it.
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.255.255.254",
    "127.0.0.53",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.0.0.01",
    "0x7f.1",
    "127.0x1",
    "127.0.0.0x1",
    "0",
    "0.0.0.0",
    "0x0",
    "00000000000",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "127.0.0.1%00",
    "0177.0x0.1",
    // Loopback in IPv6.
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:7f00:0001::1]",
    "[2001:0:7f00:1::]",
    "[::ffff:0:127.0.0.1]",
    "[fe80::1]",
    "[fe80::5efe:7f00:1]",
    "[fc00::1]",
    "[fd12:3456::1]",
    "[ff02::1]",
    // Private, link-local, shared, metadata, multicast, reserved.
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.0.192",
    // Names.
    "localhost",
    "LOCALHOST.",
    "localhost.localdomain",
    "foo.localhost",
];

/// Whole URLs that no fetch may follow.
const URLS: [&str; 16] = [
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "ftp://127.0.0.1/",
    "gopher://127.0.0.1:PORT/_x",
    "dict://127.0.0.1:PORT/",
    "ldap://127.0.0.1:PORT/",
    "unix:///var/run/docker.sock",
    "jar:http://127.0.0.1:PORT!/",
    "javascript:alert(1)",
    "//127.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http://user@127.0.0.1:PORT/",
    "http://user:pass@127.0.0.1:PORT/",
    "http://example.com@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\\@example.com/",
];

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
    let hosts = HOSTS.iter().map(|host| format!("http://{host}:{}/i.png", canary.port));
    let tls = ["127.0.0.1", "[::1]"].iter().map(|host| format!("https://{host}:{}/i.png", canary.port));
    let urls = URLS.iter().map(|url| url.replace("PORT", &canary.port.to_string()));
    for url in hosts.chain(tls).chain(urls) {
        let outcome = source.fetch(fetch(url.clone())).await;
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
        let target = HOSTS.get(index).map_or_else(
            || URLS[index - HOSTS.len()].replace("PORT", &port.to_string()),
            |host| format!("http://{host}:{port}/"),
        );
        let target: String = target.chars().filter(char::is_ascii).collect();
        peer.send(&format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"));
    });
    let policy = AddressPolicy::new(vec!["127.0.0.2/32".parse().unwrap()]);
    let source = HttpMediaSource::new(MediaConfig::new(policy));
    for index in 0..HOSTS.len() + URLS.len() {
        let outcome = source.fetch(fetch(format!("http://{}/{index}", origin.address))).await;
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
        assert!(source.fetch(fetch(url)).await.is_ok(), "{host}");
    }
}
