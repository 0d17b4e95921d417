//! The engine client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use ports::Engine;
use ports::engine::{Endpoint, EngineStatus, Error, Request, Response, ServedModel};

use crate::authorities::Authorities;
use crate::chunks::Chunks;
use crate::connection::{Connection, Failed, Streaming};
use crate::pool::Pool;
use crate::response_body::ResponseBody;
use crate::transport::Dialer;

/// Bounds of the engine client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Longest time to connect, name resolution and TLS included.
    pub connect: Duration,
    /// Longest time from the request to the response head; a long generation without streaming needs all of it.
    pub head: Duration,
    /// Longest silence within a body.
    pub idle: Duration,
    /// Idle connections kept per engine.
    pub pool_per_engine_max: usize,
    /// How long one is kept; below the 5 s after which vLLM's server closes it.
    pub pool_keep: Duration,
    /// Whom to trust beside the system's authorities, where an engine speaks TLS.
    pub authorities: Authorities,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            head: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            pool_per_engine_max: 256,
            pool_keep: Duration::from_secs(4),
            authorities: Authorities::default(),
        }
    }
}

/// Talks HTTP/1.1 to engines, over pooled connections.
#[derive(Debug)]
pub struct HttpEngine {
    config: Config,
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl HttpEngine {
    /// Makes a client; connections are opened as needed.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let pool = Arc::new(Pool::new(config.pool_per_engine_max, config.pool_keep));
        let dialer = Dialer::new(config.authorities.clone());
        Self { config, dialer, pool }
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, Error> {
        let connecting = async {
            let tls_name = endpoint.tls().then(|| endpoint.host());
            let mut last = io::Error::new(io::ErrorKind::NotFound, "host has no address");
            for address in addresses(endpoint).await? {
                match self.dialer.dial(address, tls_name).await {
                    Ok(transport) => {
                        let started = Connection::start(transport, HEAD_BYTES_MAX).await;
                        return started.map_err(|failed| io::Error::other(failed.reason));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let connected = match tokio::time::timeout(self.config.connect, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        connected.map_err(|source| Error::Connect { endpoint: endpoint.clone(), source })
    }

    /// Sends over a pooled connection if there is one, and over a new one if that turns out dead.
    ///
    /// An engine closes idle connections on its own clock, so a request may cross with the close; it then has not
    /// been read, and is sent again to the same engine.
    async fn send(&self, endpoint: &Endpoint, request: &Request) -> Result<http::Response<Streaming>, Error> {
        let broken = |failed: Failed| Error::Broken { endpoint: endpoint.clone(), reason: failed.reason };
        if let Some(connection) = self.pool.take(endpoint) {
            match connection.exchange(outgoing(endpoint, request)).await {
                Ok(response) => return Ok(response),
                Err(failed) => {
                    tracing::debug!(%endpoint, reason = failed.reason, "pooled connection was dead");
                }
            }
        }
        let connection = self.connect(endpoint).await?;
        connection.exchange(outgoing(endpoint, request)).await.map_err(broken)
    }

    /// Asks the engine something about itself and reads a small answer whole.
    async fn ask(&self, endpoint: &Endpoint, path: &'static str, deadline: Duration) -> Result<Bytes, Error> {
        let request = Request {
            method: Method::GET,
            path: PathAndQuery::from_static(path),
            headers: HeaderMap::new(),
            body: Vec::new(),
        };
        let asking = async {
            let mut response = self.forward(endpoint, request).await?;
            if response.status != StatusCode::OK {
                return Err(Error::Status { endpoint: endpoint.clone(), status: response.status.as_u16() });
            }
            let mut text = BytesMut::new();
            while let Some(frame) = response.body.frame().await {
                if let Ok(data) = frame?.into_data() {
                    text.extend_from_slice(&data);
                }
                if text.len() > ANSWER_BYTES_MAX {
                    let reason = format!("{path} exceeds {ANSWER_BYTES_MAX} bytes");
                    return Err(Error::Unreadable { endpoint: endpoint.clone(), reason });
                }
            }
            Ok(text.freeze())
        };
        match tokio::time::timeout(deadline, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::HeadTimeout { endpoint: endpoint.clone(), deadline }),
        }
    }
}

/// Largest response head of an engine, in bytes.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Largest answer about the engine itself, in bytes.
const ANSWER_BYTES_MAX: usize = 8 << 20;

async fn addresses(endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = endpoint.host().parse() {
        return Ok(vec![SocketAddr::new(address, endpoint.port())]);
    }
    Ok(tokio::net::lookup_host((endpoint.host(), endpoint.port())).await?.collect())
}

fn outgoing(endpoint: &Endpoint, request: &Request) -> http::Request<Chunks> {
    let mut outgoing = http::Request::new(Chunks::new(request.body.clone()));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = endpoint.target(&request.path);
    *outgoing.headers_mut() = request.headers.clone();
    let headers = outgoing.headers_mut();
    strip_hop_by_hop(headers);
    headers.remove(header::CONTENT_LENGTH);
    if let Ok(host) = HeaderValue::from_str(endpoint.authority().as_str()) {
        headers.insert(header::HOST, host);
    }
    outgoing
}

/// Headers that concern one connection only (RFC 9110 §7.6.1).
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if let Some(named) = headers.get(header::CONNECTION).cloned()
        && let Ok(named) = named.to_str()
    {
        for name in named.split(',') {
            headers.remove(name.trim());
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

#[async_trait]
impl Engine for HttpEngine {
    async fn forward(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Error> {
        let deadline = self.config.head;
        let response = match tokio::time::timeout(deadline, self.send(endpoint, &request)).await {
            Ok(sent) => sent?,
            Err(_) => return Err(Error::HeadTimeout { endpoint: endpoint.clone(), deadline }),
        };
        let (head, streaming) = response.into_parts();
        let mut headers = head.headers;
        strip_hop_by_hop(&mut headers);
        let body = ResponseBody::new(streaming, endpoint.clone(), self.config.idle, Arc::clone(&self.pool));
        Ok(Response { status: head.status, headers, body: body.boxed_unsync() })
    }

    async fn health(&self, endpoint: &Endpoint, deadline: Duration) -> Result<(), Error> {
        self.ask(endpoint, "/health", deadline).await.map(|_| ())
    }

    async fn status(&self, endpoint: &Endpoint, deadline: Duration) -> Result<EngineStatus, Error> {
        let text = self.ask(endpoint, "/metrics", deadline).await?;
        Ok(EngineStatus::parse(&String::from_utf8_lossy(&text)))
    }

    async fn models(&self, endpoint: &Endpoint, deadline: Duration) -> Result<Vec<ServedModel>, Error> {
        let text = self.ask(endpoint, "/v1/models", deadline).await?;
        ServedModel::parse_list(&text)
            .map_err(|reason| Error::Unreadable { endpoint: endpoint.clone(), reason })
    }
}
