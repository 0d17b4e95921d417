//! The listener of a media directory: connections are its children and end with it.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::media_surface::MediaSurface;

/// Connections at once; frontends keep a few each.
const CONNECTIONS_MAX: usize = 256;
/// Longest time a request head may take to arrive, and a kept connection may be idle.
const HEAD: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until it is dropped. Past the bound, new connections wait to be accepted.
pub(crate) async fn serve(listener: TcpListener, surface: Arc<MediaSurface>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, Arc::clone(&surface)))),
                Err(cause) => {
                    tracing::debug!(%cause, "connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, surface: Arc<MediaSurface>) {
    if let Err(cause) = stream.set_nodelay(true) {
        tracing::debug!(%cause, "no-delay cannot be set");
    }
    let service = service_fn(move |request| Arc::clone(&surface).handle(request));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD);
    if let Err(cause) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%cause, "connection ended early");
    }
}
