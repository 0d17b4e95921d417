//! Serving requests on a listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use adapter_http::{Bounds, Listener, TlsFiles};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Response<Answer>> + Send;
}

/// Accepts connections until `stop`, then lets those that are busy finish.
pub(crate) async fn serve<H: Handler>(
    listener: Listener,
    handler: Arc<H>,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    adapter_http::serve(listener, service, bounds, stop).await;
}

/// Binds a listener.
///
/// # Errors
/// Says which address is taken or not ours, or which file cannot be used.
pub(crate) async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> anyhow::Result<Listener> {
    Ok(Listener::bind(address, tls).await?)
}
