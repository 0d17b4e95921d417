//! An engine's event feed over ZeroMQ: SUB for what is published, DEALER for what is replayed.
//!
//! ```text
//! published        [topic][seq u64 BE][payload]
//! replay request   [][start u64 BE]
//! replayed         [][seq][payload]            (vLLM up to 0.25)      [][topic][seq][payload]    (from 0.26)
//! end of replay    [][ff × 8][]                                       [][][ff × 8][]
//! ```

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::mpsc::Receiver;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use ports::EventFeed;
use ports::event_feed::{Error, Frame, Received, Replay};
use tokio::time::timeout;
use zeromq::{
    DealerSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend, SubSocket, ZmqError,
    ZmqMessage, ZmqResult,
};

use crate::endpoint::Attach;

/// How long one attempt to connect takes.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// Ends a replay.
const END: u64 = u64::MAX;

/// Where an engine's rank publishes and replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The publisher.
    pub events: Attach,
    /// The replay endpoint, which the engine always binds; none where it has none.
    pub replay: Option<String>,
    /// Prefix of the topics to receive; empty for all.
    pub topic: String,
    /// How much one replay returns at most, in bytes of payload; the rest is asked for again.
    pub replay_bytes_max: usize,
}

impl Config {
    /// Receives all topics, with replays of at most 64 MiB.
    #[must_use]
    pub const fn new(events: Attach, replay: Option<String>) -> Self {
        Self { events, replay, topic: String::new(), replay_bytes_max: 64 << 20 }
    }
}

/// One rank's feed; connects when it is first waited for, and again whenever the link breaks.
pub struct ZmqFeed {
    config: Config,
    opening: Option<BoxFuture<'static, ZmqResult<Open>>>,
    open: Option<Open>,
}

/// A socket with the reports about its connections.
struct Open {
    socket: SubSocket,
    reports: Receiver<SocketEvent>,
}

impl ZmqFeed {
    /// Makes a feed; nothing is connected or bound yet.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config, opening: None, open: None }
    }

    /// Opens the socket unless it is open; cancelled, it goes on where it was.
    async fn opened(&mut self) -> Result<&mut Open, Error> {
        if self.open.is_none() {
            let opening = self.opening.get_or_insert_with(|| open(self.config.clone()).boxed());
            let outcome = opening.await;
            self.opening = None;
            self.open = Some(outcome.map_err(|error| endpoint_error(self.config.events.endpoint(), error))?);
        }
        self.open.as_mut().ok_or(Error::Malformed { parts: 0 })
    }
}

impl fmt::Debug for ZmqFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZmqFeed")
            .field("config", &self.config)
            .field("open", &self.open.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl EventFeed for ZmqFeed {
    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            let connects = matches!(self.config.events, Attach::Connect(_));
            let open = self.opened().await?;
            tokio::select! {
                biased;
                message = open.socket.recv() => match message {
                    Ok(message) => return published(message).map(Received::Frame),
                    // What the peer sent cannot be parsed, or it is gone: its connection is closed already.
                    Err(error) => tracing::debug!(%error, "event feed connection failed"),
                },
                report = open.reports.next() => match report {
                    Some(SocketEvent::Connected(..) | SocketEvent::Accepted(..)) => return Ok(Received::Connected),
                    // The socket would reconnect by itself, but after up to 30 s.
                    Some(SocketEvent::Disconnected(_)) if connects => self.open = None,
                    None => self.open = None,
                    Some(_) => {}
                },
            }
        }
    }

    async fn replay(&mut self, from: u64, deadline: Duration) -> Result<Replay, Error> {
        let endpoint = self.config.replay.as_deref().ok_or(Error::NoReplay)?;
        timeout(deadline, replay(endpoint, from, deadline, self.config.replay_bytes_max))
            .await
            .unwrap_or(Err(Error::ReplayTimeout { from, deadline }))
    }
}

async fn open(config: Config) -> ZmqResult<Open> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT_DEADLINE);
    let mut socket = SubSocket::with_options(options);
    let reports = socket.monitor();
    socket.subscribe(&config.topic).await?;
    match &config.events {
        Attach::Connect(endpoint) => socket.connect(endpoint).await?,
        Attach::Bind(endpoint) => drop(socket.bind(endpoint).await?),
    }
    Ok(Open { socket, reports })
}

async fn replay(endpoint: &str, from: u64, deadline: Duration, bytes_max: usize) -> Result<Replay, Error> {
    let mut options = SocketOptions::default();
    options.connect_timeout(deadline);
    let mut socket = DealerSocket::with_options(options);
    let failed = |error| endpoint_error(endpoint, error);
    socket.connect(endpoint).await.map_err(failed)?;
    let mut request = ZmqMessage::from(Bytes::new());
    request.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
    socket.send(request).await.map_err(failed)?;
    let mut replay = Replay::default();
    let mut bytes = 0;
    while bytes <= bytes_max {
        let frame = published(socket.recv().await.map_err(failed)?)?;
        if frame.seq == END {
            replay.complete = true;
            break;
        }
        bytes += frame.payload.len();
        replay.frames.push(frame);
    }
    Ok(replay)
}

/// Reads a message from its end, where all layouts agree.
fn published(message: ZmqMessage) -> Result<Frame, Error> {
    let mut parts = message.into_vec();
    let malformed = Error::Malformed { parts: parts.len() };
    let (Some(payload), Some(seq)) = (parts.pop(), parts.pop()) else {
        return Err(malformed);
    };
    let Ok(seq) = <[u8; 8]>::try_from(&*seq) else {
        return Err(malformed);
    };
    Ok(Frame { seq: u64::from_be_bytes(seq), payload })
}

fn endpoint_error(endpoint: &str, error: ZmqError) -> Error {
    let source = if let ZmqError::Network(error) = error {
        error
    } else if let ZmqError::ConnectTimeout(_) = error {
        let hint = "nothing listens there yet, or the engine connects by itself and this side has to bind";
        std::io::Error::new(std::io::ErrorKind::TimedOut, hint)
    } else {
        std::io::Error::other(error)
    };
    Error::Endpoint { endpoint: endpoint.to_owned(), source }
}
