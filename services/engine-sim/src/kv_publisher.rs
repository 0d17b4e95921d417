//! The engine's side of its event feed: a ZMQ PUB socket, and a ROUTER that answers with past batches.
//!
//! ```text
//! PUB      topic ‖ sequence u64 BE ‖ payload
//! ROUTER   asked     identity ‖ "" ‖ first sequence u64 BE
//!          answers   identity ‖ "" ‖ topic ‖ sequence ‖ payload      one for each batch still in the ring
//!                    identity ‖ "" ‖ "" ‖ ff×8 ‖ ""                  (array format: without the topic frame)
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use zeromq::{
    Endpoint, PubSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketEvent, SocketRecv,
    SocketSend, ZmqError, ZmqMessage,
};

use crate::event_codec::{EventCodec, EventFormat};
use crate::kv_event::KvEvent;
use crate::wall_clock;
use crate::zmq_endpoint::{Side, bindable};

/// Batches kept for replay, vLLM's `buffer_steps`.
pub(crate) const RING_BATCHES: usize = 10_000;
const QUEUE_BATCHES: usize = 1024;
const REPLAY_DEADLINE: Duration = Duration::from_secs(5);
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
const END: [u8; 8] = [0xff; 8];

/// Where and how one rank publishes.
#[derive(Clone, Debug)]
pub(crate) struct PublisherConfig {
    /// Endpoint of the PUB socket, already that of this rank.
    pub(crate) events: String,
    /// Which side the PUB socket takes.
    pub(crate) side: Side,
    /// Endpoint of the ROUTER, which is always bound; `None` for no replay.
    pub(crate) replay: Option<String>,
    /// First frame of every message.
    pub(crate) topic: String,
    /// Encoding of batches.
    pub(crate) codec: EventCodec,
}

/// A rank's way to the publisher.
#[derive(Clone, Debug)]
pub(crate) struct EventSink(mpsc::Sender<Vec<KvEvent>>);

impl EventSink {
    /// Hands over one batch; waits while a thousand others have not been sent.
    pub(crate) async fn publish(&self, events: Vec<KvEvent>) {
        if self.0.send(events).await.is_err() {
            debug!("event publisher is gone");
        }
    }
}

/// The sockets of one rank, bound and ready to run.
pub(crate) struct KvPublisher {
    /// The PUB endpoint with its real port.
    pub(crate) events: String,
    /// The ROUTER endpoint with its real port.
    pub(crate) replay: Option<String>,
    batches: mpsc::Receiver<Vec<KvEvent>>,
    socket: Option<PubSocket>,
    router: Option<RouterSocket>,
    config: PublisherConfig,
    ring: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
}

impl std::fmt::Debug for KvPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvPublisher")
            .field("events", &self.events)
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}

impl KvPublisher {
    /// Binds what is to be bound.
    ///
    /// # Errors
    /// Fails if an endpoint is malformed or taken.
    pub(crate) async fn bind(config: PublisherConfig) -> Result<(EventSink, Self), ZmqError> {
        let (sink, batches) = mpsc::channel(QUEUE_BATCHES);
        let (socket, events) = match config.side {
            Side::Bind => {
                let mut socket = PubSocket::new();
                let bound = socket.bind(&bindable(&config.events)).await?;
                (Some(socket), resolved(&config.events, &bound))
            }
            Side::Connect => (None, config.events.clone()),
        };
        let (router, replay) = match &config.replay {
            Some(endpoint) => {
                let mut router = RouterSocket::new();
                let bound = router.bind(&bindable(endpoint)).await?;
                (Some(router), Some(resolved(endpoint, &bound)))
            }
            None => (None, None),
        };
        let ring = Arc::default();
        Ok((EventSink(sink), Self { events, replay, batches, socket, router, config, ring }))
    }

    /// Publishes until every sink is dropped or `stop` is cancelled, and answers replays meanwhile.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let replay = self.router.take().map(|router| {
            let (to, from) = router.split();
            let topic = (self.config.codec.format == EventFormat::Map)
                .then(|| Bytes::from(self.config.topic.clone()));
            Replay { ring: Arc::clone(&self.ring), topic }.run(from, to)
        });
        let replay = replay.map_or_else(|| futures::future::pending().boxed(), FutureExt::boxed);
        tokio::select! {
            () = self.publish() => {}
            () = replay => {}
            () = stop.cancelled() => {}
        }
    }

    async fn publish(&mut self) {
        let topic = Bytes::from(self.config.topic.clone());
        let mut link = match self.socket.take() {
            Some(socket) => Link::Bound(socket),
            None => Link::connecting(&self.config.events),
        };
        let mut next = 0_u64;
        loop {
            tokio::select! {
                () = link.advance(&self.config.events) => {}
                batch = self.batches.recv() => {
                    let Some(events) = batch else { return };
                    let Some(payload) = self.encode(&events) else { continue };
                    self.keep(next, &payload);
                    link.send(frames([topic.clone(), Bytes::copy_from_slice(&next.to_be_bytes()), payload])).await;
                    next += 1;
                }
            }
        }
    }

    fn encode(&self, events: &[KvEvent]) -> Option<Bytes> {
        match self.config.codec.encode(wall_clock::now().as_secs_f64(), events) {
            Ok(payload) => Some(payload.into()),
            Err(error) => {
                warn!(%error, "event batch cannot be encoded");
                None
            }
        }
    }

    fn keep(&self, sequence: u64, payload: &Bytes) {
        let mut ring = self.ring.lock();
        if ring.len() == RING_BATCHES {
            ring.pop_front();
        }
        ring.push_back((sequence, payload.clone()));
    }
}

/// Spells a bound endpoint as it was configured, but with its real port.
fn resolved(configured: &str, bound: &Endpoint) -> String {
    match (configured.strip_suffix(":0"), bound) {
        (Some(host), Endpoint::Tcp(_, port)) => format!("{host}:{port}"),
        _ => configured.to_owned(),
    }
}

/// The PUB socket: bound for good, or connected to the one subscriber and connected again when that went away.
enum Link {
    Bound(PubSocket),
    Connecting(BoxFuture<'static, Result<PubSocket, ZmqError>>),
    Connected(PubSocket, futures::channel::mpsc::Receiver<SocketEvent>),
}

impl Link {
    fn connecting(endpoint: &str) -> Self {
        let endpoint = endpoint.to_owned();
        let connect = async move {
            let mut socket = PubSocket::new();
            socket.connect(&endpoint).await?;
            Ok(socket)
        };
        Self::Connecting(connect.boxed())
    }

    /// Waits for the next change of the connection and makes it; pends while there can be none. Safe to cancel.
    async fn advance(&mut self, endpoint: &str) {
        match self {
            Self::Bound(_) => futures::future::pending().await,
            Self::Connecting(connect) => match connect.await {
                Ok(mut socket) => {
                    debug!(endpoint, "event subscriber connected");
                    let monitor = socket.monitor();
                    *self = Self::Connected(socket, monitor);
                }
                Err(error) => {
                    debug!(endpoint, %error, "event subscriber does not answer");
                    *self = Self::connecting_later(endpoint);
                }
            },
            Self::Connected(_, monitor) => {
                let lost = matches!(monitor.next().await, None | Some(SocketEvent::Disconnected(_)));
                if lost {
                    debug!(endpoint, "event subscriber left");
                    *self = Self::connecting_later(endpoint);
                }
            }
        }
    }

    fn connecting_later(endpoint: &str) -> Self {
        let Self::Connecting(connect) = Self::connecting(endpoint) else { return Self::connecting(endpoint) };
        Self::Connecting(tokio::time::sleep(RECONNECT_PAUSE).then(|()| connect).boxed())
    }

    /// Sends to whoever subscribed; without a connection the message is lost, as in vLLM.
    async fn send(&mut self, message: Option<ZmqMessage>) {
        let (Self::Bound(socket) | Self::Connected(socket, _)) = self else { return };
        if let Some(message) = message
            && let Err(error) = socket.send(message).await
        {
            debug!(%error, "event batch was not sent");
        }
    }
}

/// The ROUTER's part.
struct Replay {
    ring: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
    /// Sent before the sequence, in the layout that has it.
    topic: Option<Bytes>,
}

impl Replay {
    async fn run(self, mut from: RouterRecvHalf, mut to: RouterSendHalf) {
        loop {
            match from.recv().await {
                Ok(request) => {
                    match tokio::time::timeout(REPLAY_DEADLINE, self.answer(request, &mut to)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%error, "replay was not sent"),
                        Err(_) => warn!("replay was given up: its client does not read"),
                    }
                }
                Err(error) => {
                    debug!(%error, "replay request cannot be read");
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn answer(&self, request: ZmqMessage, to: &mut RouterSendHalf) -> Result<(), ZmqError> {
        let request = request.into_vec();
        let [identity, _, start] = request.as_slice() else {
            warn!(parts = request.len(), "replay request is malformed");
            return Ok(());
        };
        let start = start.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        let batches: Vec<(u64, Bytes)> =
            self.ring.lock().iter().filter(|(sequence, _)| *sequence >= start).cloned().collect();
        for (sequence, payload) in batches {
            let sequence = Bytes::copy_from_slice(&sequence.to_be_bytes());
            self.send(identity, self.topic.clone(), [sequence, payload], to).await?;
        }
        let topic = self.topic.as_ref().map(|_| Bytes::new());
        self.send(identity, topic, [Bytes::from_static(&END), Bytes::new()], to).await
    }

    async fn send(
        &self,
        identity: &Bytes,
        topic: Option<Bytes>,
        rest: [Bytes; 2],
        to: &mut RouterSendHalf,
    ) -> Result<(), ZmqError> {
        let parts = [identity.clone(), Bytes::new()].into_iter().chain(topic).chain(rest);
        match frames(parts) {
            Some(message) => to.send(message).await,
            None => Ok(()),
        }
    }
}

fn frames(parts: impl IntoIterator<Item = Bytes>) -> Option<ZmqMessage> {
    ZmqMessage::try_from(parts.into_iter().collect::<Vec<_>>()).ok()
}
