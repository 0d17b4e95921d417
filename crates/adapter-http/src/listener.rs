//! A socket that takes connections, with or without TLS.

mod certificates;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;

use self::certificates::Certificates;
use crate::transport::Transport;

/// PEM files by which a listener shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those between it and its authority, the own one first.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody else listens there.
    #[error("address {address} is already in use")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of a certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a certificate, key or authority cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds no certificate, or no key, in PEM.
    #[error("{} holds no {wanted} in PEM", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The certificate and the key do not go together, or are of a kind that is not known.
    #[error("certificate {} and key {} cannot be used together", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    welcome: Welcome,
}

/// How new connections are met; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Welcome(Option<Arc<Tls>>);

#[derive(Debug)]
struct Tls {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// Handshakes past their first message, which costs a signature.
    handshakes: Semaphore,
}

/// Longest time a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at once whose first message has come.
const HANDSHAKES_MAX: usize = 256;
/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

impl Listener {
    /// Binds a socket; port 0 takes a free one. With `tls`, clients must speak it.
    ///
    /// # Errors
    /// Says which address or file cannot be used.
    pub async fn bind(address: SocketAddr, tls: Option<&TlsFiles>) -> Result<Self, ListenError> {
        let welcome = Welcome::with(tls)?;
        let bound = TcpListener::bind(address).await;
        let socket = bound.map_err(|source| {
            if source.kind() == io::ErrorKind::AddrInUse {
                ListenError::InUse { address }
            } else {
                ListenError::Address { address, source }
            }
        })?;
        let address = socket.local_addr().map_err(|source| ListenError::Address { address, source })?;
        Ok(Self { socket, address, welcome })
    }

    /// Takes a socket that is bound already and doesn't block.
    ///
    /// # Errors
    /// Says which file, or that the socket, cannot be used.
    pub fn adopt(socket: std::net::TcpListener, tls: Option<&TlsFiles>) -> Result<Self, ListenError> {
        let welcome = Welcome::with(tls)?;
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let address = socket.local_addr();
        let unusable = |source, address| ListenError::Address { address, source };
        let address = address.map_err(|source| unusable(source, unspecified))?;
        let socket = TcpListener::from_std(socket).map_err(|source| unusable(source, address))?;
        Ok(Self { socket, address, welcome })
    }

    /// Returns where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.accept().await
    }

    pub(crate) fn welcome(&self) -> Welcome {
        self.welcome.clone()
    }
}

impl Tls {
    fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let certificates = Arc::new(Certificates::load(files)?);
        let config = certificates::config(&certificates);
        Ok(Self { config: Arc::new(config), certificates, handshakes: Semaphore::new(HANDSHAKES_MAX) })
    }
}

impl Welcome {
    fn with(tls: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let load = |files: &TlsFiles| Tls::load(files.clone()).map(Arc::new);
        tls.map(load).transpose().map(Self)
    }

    /// Does what has to be done before HTTP begins, in bounded time.
    pub(crate) async fn greet(&self, stream: TcpStream) -> io::Result<Transport> {
        let Some(tls) = &self.0 else { return Ok(Transport::Plain(stream)) };
        let handshake = async {
            let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
            // Only now: those who connect and say nothing keep nobody out.
            let _turn = tls.handshakes.acquire().await.map_err(io::Error::other)?;
            start.into_stream(Arc::clone(&tls.config)).await
        };
        let greeted = tokio::time::timeout(HANDSHAKE, Box::pin(handshake)).await;
        let stream =
            greeted.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "handshake took too long"))?;
        Ok(Transport::Tls(Box::new(stream?.into())))
    }

    /// Takes up what is new in the files, for ever.
    pub(crate) async fn follow_files(&self) {
        let Some(tls) = &self.0 else { return std::future::pending().await };
        loop {
            tokio::time::sleep(LOOK).await;
            tls.certificates.renew().await;
        }
    }
}
