//! The clients keep their ports' contracts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use adapter_http::{EngineConfig, HttpEngine, HttpMediaSource, MediaConfig};
use async_trait::async_trait;
use media_probe::AddressPolicy;
use parking_lot::Mutex;
use ports::conformance::{engine, media_source};
use ports::engine::Endpoint;
use ports::engine::memory::{Reply, Then};
use ports::media_source::memory::Resource;
use ports::{Engine, MediaSource};

use crate::server::{Peer, Server};

struct Engines {
    client: HttpEngine,
    cancelled: Arc<AtomicU64>,
}

/// Plays a scripted answer over a socket.
fn play(peer: &mut Peer, reply: &Reply, cancelled: &AtomicU64) -> bool {
    if reply.chunks.is_empty() && reply.then == Then::Break {
        return false;
    }
    peer.send(&format!("HTTP/1.1 {}\r\ntransfer-encoding: chunked\r\n", reply.status));
    for (name, value) in &reply.headers {
        peer.send(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    peer.send("\r\n");
    for chunk in reply.chunks.iter().filter(|chunk| !chunk.is_empty()) {
        peer.send(&format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap()));
    }
    match reply.then {
        Then::End => peer.send("0\r\n\r\n"),
        Then::Hang => {
            if peer.closed() {
                cancelled.fetch_add(1, Ordering::SeqCst);
            }
            false
        }
        Then::Break | Then::Refuse => false,
    }
}

#[async_trait]
impl engine::Harness for Engines {
    fn client(&self) -> &dyn Engine {
        &self.client
    }

    async fn engine(&self, reply: Reply) -> Endpoint {
        if reply.then == Then::Refuse {
            return Endpoint::parse("http://127.0.0.1:1").unwrap();
        }
        let cancelled = Arc::clone(&self.cancelled);
        let server = Server::start(
            move |mut peer| {
                while peer.request().is_some() && play(&mut peer, &reply, &cancelled) {}
            },
        );
        Endpoint::parse(&format!("http://{}", server.address)).unwrap()
    }

    async fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::SeqCst)
    }
}

struct Origin {
    client: HttpMediaSource,
    server: Server,
    resources: Arc<Mutex<HashMap<String, Resource>>>,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    /// Starts an origin that gives parts of a resource, or always the whole.
    fn start(knows_ranges: bool) -> Self {
        let resources: Arc<Mutex<HashMap<String, Resource>>> = Arc::default();
        let requests = Arc::new(AtomicUsize::new(0));
        let (shelf, count) = (Arc::clone(&resources), Arc::clone(&requests));
        let server = Server::start(move |mut peer| {
            let Some(seen) = peer.request() else { return };
            count.fetch_add(1, Ordering::SeqCst);
            let found = shelf.lock().get(seen.line.split(' ').nth(1).unwrap()).cloned();
            let Some(resource) = found else {
                peer.send("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
                return;
            };
            let (etag, age) = (resource.validator.etag.unwrap(), resource.freshness.fresh_for.as_secs());
            let head = format!("etag: {etag}\r\ncache-control: max-age={age}\r\n");
            if seen.header("if-none-match") == Some(etag.as_str()) {
                peer.send(&format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n"));
            } else {
                let text = std::str::from_utf8(&resource.bytes).unwrap();
                let range =
                    seen.header("range").filter(|_| knows_ranges).map(|range| part(range, text.len()));
                let (status, text) = match range {
                    Some((from, to)) => {
                        let status =
                            format!("206 Partial\r\ncontent-range: bytes {from}-{}/{}", to - 1, text.len());
                        (status, &text[from..to])
                    }
                    None => ("200 OK".to_owned(), text),
                };
                let length = text.len();
                peer.send(&format!("HTTP/1.1 {status}\r\n{head}content-length: {length}\r\n\r\n{text}"));
            }
        });
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        Self { client: HttpMediaSource::new(MediaConfig::new(policy)), server, resources, requests }
    }
}

/// Reads `bytes=FROM-LAST` of a text so long.
fn part(range: &str, len: usize) -> (usize, usize) {
    let (from, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    (from.parse().unwrap(), (last.parse::<usize>().unwrap() + 1).min(len))
}

#[async_trait]
impl media_source::Harness for Origin {
    fn client(&self) -> &dyn MediaSource {
        &self.client
    }

    async fn put(&self, name: &str, resource: Resource) -> String {
        self.resources.lock().insert(format!("/{name}"), resource);
        format!("http://{}/{name}", self.server.address)
    }

    async fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn engines_conform() {
    let engines = Engines { client: HttpEngine::new(EngineConfig::default()), cancelled: Arc::default() };
    engine::check(&engines).await.unwrap();
}

#[tokio::test]
async fn origins_conform() {
    for knows_ranges in [true, false] {
        media_source::check(&Origin::start(knows_ranges)).await.unwrap();
    }
}
