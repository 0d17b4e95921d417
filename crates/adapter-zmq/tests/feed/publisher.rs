//! An engine's side of the wire, as vLLM behaves: PUB (here XPUB, to see the subscription arrive) and replay ROUTER.
#![expect(clippy::expect_used, reason = "a test's own publisher")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use adapter_zmq::{Attach, Config, ZmqFeed};
use async_trait::async_trait;
use bytes::Bytes;
use ports::EventFeed;
use ports::event_feed::Frame;
use ports::event_feed::conformance::Rig;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket, ZmqMessage};

/// How replayed messages are laid out.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    /// vLLM up to 0.25.
    WithoutTopic,
    /// From 0.26 on.
    WithTopic,
}

pub(crate) struct Publisher {
    binds: bool,
    layout: Layout,
    events: String,
    replay: String,
    buffer: Arc<Mutex<Vec<Frame>>>,
    socket: Option<XPubSocket>,
    router: JoinSet<()>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("bound").port()
}

impl Publisher {
    /// A publisher that binds.
    pub(crate) async fn bound(layout: Layout) -> Self {
        let mut publisher = Self::new(true, layout);
        publisher.start().await;
        publisher
    }

    /// A publisher that connects, once there is somebody to connect to.
    pub(crate) async fn connecting(layout: Layout) -> Self {
        let mut publisher = Self::new(false, layout);
        publisher.start_router().await;
        publisher
    }

    fn new(binds: bool, layout: Layout) -> Self {
        let endpoint = || format!("tcp://127.0.0.1:{}", free_port());
        let (events, replay) = (endpoint(), endpoint());
        let buffer = Arc::new(Mutex::new(Vec::new()));
        Self { binds, layout, events, replay, buffer, socket: None, router: JoinSet::new() }
    }

    pub(crate) fn config(&self) -> Config {
        let events =
            if self.binds { Attach::Connect(self.events.clone()) } else { Attach::Bind(self.events.clone()) };
        Config::new(events, Some(self.replay.clone()))
    }

    async fn start(&mut self) {
        self.start_socket().await;
        self.start_router().await;
    }

    async fn start_socket(&mut self) {
        let mut socket = XPubSocket::new();
        if self.binds {
            bind(&mut socket, &self.events).await;
        } else {
            socket.connect(&self.events).await.expect("the agent binds");
        }
        self.socket = Some(socket);
    }

    async fn start_router(&mut self) {
        let mut router = RouterSocket::new();
        bind(&mut router, &self.replay).await;
        let (buffer, layout) = (Arc::clone(&self.buffer), self.layout);
        self.router.spawn(async move {
            while let Ok(request) = router.recv().await {
                answer(&mut router, &request, &buffer.lock().await, layout).await;
            }
        });
    }

    /// Connects a publisher that does, now that the agent binds; one that binds has done so already.
    pub(crate) async fn connect(&mut self) {
        if self.socket.is_none() {
            self.start_socket().await;
        }
    }

    /// Buffers and publishes a frame with its own number.
    pub(crate) async fn send(&mut self, frame: Frame) {
        self.buffer.lock().await.push(frame.clone());
        let mut message = ZmqMessage::from(Bytes::from_static(b"kv-events"));
        message.push_back(Bytes::copy_from_slice(&frame.seq.to_be_bytes()));
        message.push_back(frame.payload);
        self.socket.as_mut().expect("started").send(message).await.expect("published");
    }
}

async fn bind(socket: &mut impl Socket, endpoint: &str) {
    // The port of a process that has just ended may still be closing.
    for _ in 0..100 {
        if socket.bind(endpoint).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(socket.binds().len() == 1, "{endpoint} stays taken");
}

async fn answer(router: &mut RouterSocket, request: &ZmqMessage, buffer: &[Frame], layout: Layout) {
    let peer = request.get(0).expect("identity").clone();
    let start = request.get(request.len() - 1).expect("start");
    let start = u64::from_be_bytes(start[..].try_into().expect("eight bytes"));
    let end = Frame { seq: u64::MAX, payload: Bytes::new() };
    for frame in buffer.iter().filter(|frame| frame.seq >= start).chain([&end]) {
        let mut message = ZmqMessage::from(peer.clone());
        message.push_back(Bytes::new());
        if matches!(layout, Layout::WithTopic) {
            let topic: &'static [u8] = if frame.seq == u64::MAX { b"" } else { b"kv-events" };
            message.push_back(Bytes::from_static(topic));
        }
        message.push_back(Bytes::copy_from_slice(&frame.seq.to_be_bytes()));
        message.push_back(frame.payload.clone());
        router.send(message).await.expect("replayed");
    }
}

#[async_trait]
impl Rig for Publisher {
    async fn feed(&mut self) -> Box<dyn EventFeed> {
        let mut feed = ZmqFeed::new(self.config());
        if !self.binds {
            // The feed binds when it is first waited for.
            let nothing = timeout(Duration::from_millis(100), feed.next()).await;
            assert!(nothing.is_err(), "{nothing:?}");
            self.connect().await;
        }
        Box::new(feed)
    }

    async fn settle(&mut self) {
        let socket = self.socket.as_mut().expect("started");
        let subscription = timeout(Duration::from_secs(10), socket.recv()).await.expect("subscribed in time");
        assert_eq!(subscription.expect("readable").get(0).and_then(|part| part.first()), Some(&1));
    }

    async fn publish(&mut self, payload: Bytes) -> u64 {
        let seq = self.buffer.lock().await.len() as u64;
        self.send(Frame { seq, payload }).await;
        seq
    }

    async fn lose(&mut self, payload: Bytes) -> u64 {
        let mut buffer = self.buffer.lock().await;
        let seq = buffer.len() as u64;
        buffer.push(Frame { seq, payload });
        seq
    }

    async fn restart(&mut self) {
        drop(self.socket.take());
        self.router.shutdown().await;
        self.buffer.lock().await.clear();
        self.start().await;
    }
}
