//! Listening, and ending in good order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::Answer;
use crate::stalling::Stalling;

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Answer>> + Send;
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) connections_max: usize,
    /// Longest time a request head may take to arrive, and a kept connection may be idle.
    pub(crate) head: Duration,
    /// Longest time a client may take nothing of what is sent to it.
    pub(crate) stall: Duration,
}

/// Largest request head, in bytes; also the largest read at once.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 128;

/// Accepts connections until `stop`, then lets those that are busy finish.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    handler: Arc<H>,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (handler, stop) = (Arc::clone(&handler), stop.clone());
                connections.spawn(async move {
                    if let Err(cause) = connection(stream, handler, bounds, stop).await {
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
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn connection<H: Handler>(
    stream: TcpStream,
    handler: Arc<H>,
    bounds: Bounds,
    stop: CancellationToken,
) -> hyper::Result<()> {
    if let Err(cause) = stream.set_nodelay(true) {
        tracing::debug!(%cause, "TCP_NODELAY not set");
    }
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Stalling::new(stream, bounds.stall)), service);
    tokio::pin!(serving);
    tokio::select! {
        ended = serving.as_mut() => return ended,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    serving.await
}

/// Binds a listener.
///
/// # Errors
/// Says which address is taken or not ours.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|cause| {
        if cause.kind() == io::ErrorKind::AddrInUse {
            anyhow::anyhow!("address {address} is already in use")
        } else {
            anyhow::anyhow!("cannot listen on {address}: {cause}")
        }
    })
}
