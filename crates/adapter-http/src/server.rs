//! Serving HTTP/1.1, and ending in good order.

mod stalling;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::stalling::Stalling;
use crate::listener::{Listener, Welcome};
use crate::transport::Transport;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once; more wait to be accepted.
    pub connections_max: usize,
    /// Longest time a request head may take to arrive, and a kept connection may be idle.
    pub head: Duration,
    /// Longest time a client may take nothing of what is sent to it.
    pub stall: Duration,
}

impl Default for Bounds {
    /// What is enough for operators and probes.
    fn default() -> Self {
        Self { connections_max: 256, head: Duration::from_secs(15), stall: Duration::from_secs(30) }
    }
}

/// Largest request head, in bytes; also the largest read at once.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 128;

/// Accepts connections until `stop`, then lets those that are busy finish. A new certificate in the listener's files is
/// taken up within seconds, for new connections.
pub async fn serve<S, B>(listener: Listener, service: S, bounds: Bounds, stop: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let connections = TaskTracker::new();
    let welcome = listener.welcome();
    tokio::select! {
        () = accept(&listener, (&connections, &service), bounds, &stop) => {}
        () = welcome.follow_files() => {}
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept<S, B>(
    listener: &Listener,
    (connections, service): (&TaskTracker, &S),
    bounds: Bounds,
    stop: &CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.cancelled() => break,
        };
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (welcome, service, stop) = (listener.welcome(), service.clone(), stop.clone());
                connections.spawn(async move {
                    if let Err(cause) = connection((stream, welcome), service, bounds, stop).await {
                        tracing::debug!(%peer, %cause, "connection ended early");
                    }
                    drop(place);
                });
            }
            Err(cause) => {
                // Out of descriptors, mostly: others will be freed.
                tracing::warn!(%cause, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection<S, B>(
    (stream, welcome): (TcpStream, Welcome),
    service: S,
    bounds: Bounds,
    stop: CancellationToken,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    if let Err(cause) = stream.set_nodelay(true) {
        tracing::debug!(%cause, "TCP_NODELAY not set");
    }
    let transport: Transport = tokio::select! {
        greeted = welcome.greet(stream) => greeted?,
        () = stop.cancelled() => return Ok(()),
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Stalling::new(transport, bounds.stall)), service);
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => return ended.map_err(io::Error::other),
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    serving.await.map_err(io::Error::other)
}
