//! A TCP stream, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::authorities::Authorities;

/// Opens connections; TLS trusts the system's authorities, loaded when first needed, and some more.
#[derive(Debug)]
pub(crate) struct Dialer {
    authorities: Authorities,
    tls: OnceCell<Arc<ClientConfig>>,
}

impl Dialer {
    pub(crate) fn new(authorities: Authorities) -> Self {
        Self { authorities, tls: OnceCell::new() }
    }

    /// Connects to exactly this address, without waiting for packets to fill (`TCP_NODELAY`).
    pub(crate) async fn dial(&self, address: SocketAddr, tls_name: Option<&str>) -> io::Result<Transport> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(name) = tls_name else { return Ok(Transport::Plain(stream)) };
        let config = self.tls.get_or_try_init(|| client_config(&self.authorities)).await?;
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }
}

async fn client_config(authorities: &Authorities) -> io::Result<Arc<ClientConfig>> {
    let loaded = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs);
    let loaded = loaded.await.map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    let (added, ignored) = roots.add_parsable_certificates(loaded.certs);
    let (own, unusable) = roots.add_parsable_certificates(authorities.certificates());
    tracing::debug!(added, ignored, own, unusable, "loaded authorities");
    if added + own == 0 {
        return Err(io::Error::other("no system certificates found for https"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// An open connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
