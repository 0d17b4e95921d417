//! Listeners and clients over TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adapter_http::{
    Authorities, Bounds, EngineConfig, HttpEngine, HttpMediaSource, ListenError, Listener, MediaConfig,
    TlsError, TlsFiles, serve,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use media_probe::AddressPolicy;
use ports::engine::{self, Endpoint};
use ports::media_source::{self, Fetch, Fetched, Limits, Unbounded};
use ports::{Engine, MediaSource};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use test_certificates::{Authority, Files};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(20);
/// More than take part in handshakes at once.
const SILENT: usize = 300;

/// A server that answers everything with `hi`, on localhost, with an authority of its own.
struct Greeter {
    dir: TempDir,
    authority: Authority,
    files: TlsFiles,
    address: SocketAddr,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

fn tls_files(files: Files) -> TlsFiles {
    TlsFiles { certificate: files.certificate, key: files.key }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Greeter {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "one");
        let files = tls_files(authority.issue(&["localhost", "127.0.0.1"]));
        let listener = Listener::bind(local(), Some(&files)).await.unwrap();
        let (address, stop) = (listener.address(), CancellationToken::new());
        let service = service_fn(async |_: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hi"))))
        });
        let mut tasks = JoinSet::new();
        let bounds = Bounds { connections_max: 2 * SILENT, ..Bounds::default() };
        tasks.spawn(serve(listener, service, bounds, stop.clone()));
        Self { dir, authority, files, address, stop, _tasks: tasks }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("https://localhost:{}", self.address.port())).unwrap()
    }

    /// Asks over a new connection.
    async fn ask(&self, trusted: Option<&Path>) -> Result<u16, engine::Error> {
        let authorities = Authorities::read(trusted).unwrap();
        let client = HttpEngine::new(EngineConfig { authorities, ..EngineConfig::default() });
        let path = "/".parse().unwrap();
        let request =
            engine::Request { method: Method::GET, path, headers: HeaderMap::new(), body: Vec::new() };
        client.forward(&self.endpoint(), request).await.map(|response| response.status.as_u16())
    }

    /// Opens a connection that offers protocols.
    async fn open(&self, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        rustls::crypto::ring::default_provider().install_default().ok();
        let pem = std::fs::read(&self.authority.file).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates([CertificateDer::from_pem_slice(&pem).unwrap()]);
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

async fn exchange(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hi") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{answer:?}");
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn only_who_trusts_the_authority_gets_an_answer() {
    let greeter = Greeter::start().await;
    assert_eq!(greeter.ask(Some(&greeter.authority.file)).await.unwrap(), 200);
    let other = Authority::new(greeter.dir.path(), "other");
    for trusted in [None, Some(other.file.as_path())] {
        let error = greeter.ask(trusted).await.unwrap_err();
        let engine::Error::Connect { source, .. } = &error else { panic!("{error:?}") };
        assert!(source.to_string().contains("certificate"), "{source}");
    }
    // Plain HTTP gets nothing at all.
    let mut plain = TcpStream::connect(greeter.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn protocols_are_agreed_on() {
    let greeter = Greeter::start().await;
    for (offered, agreed) in [(&["h2", "http/1.1"][..], Some(&b"http/1.1"[..])), (&[], None)] {
        let mut stream = greeter.open(offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), agreed);
        exchange(&mut stream).await;
    }
    assert!(greeter.open(&["h2"]).await.is_err());
}

#[tokio::test]
async fn a_new_certificate_is_taken_up_and_open_connections_stay() {
    let greeter = Greeter::start().await;
    let mut kept = greeter.open(&[]).await.unwrap();
    exchange(&mut kept).await;
    let next = Authority::new(greeter.dir.path(), "next");
    let new = next.issue(&["localhost"]);
    // The certificate without its key changes nothing yet.
    std::fs::copy(&new.certificate, &greeter.files.certificate).unwrap();
    assert_eq!(greeter.ask(Some(&greeter.authority.file)).await.unwrap(), 200);
    std::fs::copy(&new.key, &greeter.files.key).unwrap();
    let renewed = async {
        while greeter.ask(Some(&next.file)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, renewed).await.unwrap();
    assert!(greeter.ask(Some(&greeter.authority.file)).await.is_err());
    exchange(&mut kept).await;
    greeter.stop.cancel();
}

#[tokio::test]
async fn the_silent_keep_nobody_out_and_are_shown_out() {
    let greeter = Greeter::start().await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(greeter.address).await.unwrap());
    }
    assert_eq!(greeter.ask(Some(&greeter.authority.file)).await.unwrap(), 200);
    let mut first = silent.swap_remove(0);
    let closed = tokio::time::timeout(SOON, first.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
}

#[tokio::test]
async fn unusable_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "one");
    let (a, b) = (authority.issue(&["a"]), authority.issue(&["b"]));
    let bind = async |certificate: &Path, key: &Path| {
        let files = TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        Listener::bind(local(), Some(&files)).await.unwrap_err()
    };
    let mixed = bind(&a.certificate, &b.key).await;
    assert!(matches!(mixed, ListenError::Tls(TlsError::Unusable { .. })), "{mixed:?}");
    let swapped = bind(&a.key, &a.certificate).await;
    assert!(
        matches!(swapped, ListenError::Tls(TlsError::Empty { wanted: "certificate", .. })),
        "{swapped:?}"
    );
    let missing = bind(&dir.path().join("none"), &a.key).await;
    assert!(matches!(missing, ListenError::Tls(TlsError::Unreadable { .. })), "{missing:?}");
    assert!(missing.to_string().contains("none"), "{missing}");
    let taken = Listener::bind(local(), None).await.unwrap();
    let taken = Listener::bind(taken.address(), None).await.unwrap_err();
    assert!(matches!(taken, ListenError::InUse { .. }), "{taken:?}");
    assert!(Authorities::read(Some(&a.key)).is_err());
}

#[tokio::test]
async fn media_come_from_origins_with_a_private_authority() {
    let greeter = Greeter::start().await;
    let source = |trusted| {
        let mut config = MediaConfig::new(AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]));
        config.authorities = Authorities::read(trusted).unwrap();
        HttpMediaSource::new(config)
    };
    let fetch = || Fetch {
        url: format!("https://localhost:{}/i.png", greeter.address.port()),
        known: None,
        limits: Limits::default(),
    };
    let fetched = source(Some(greeter.authority.file.as_path())).fetch(fetch(), &mut Unbounded).await;
    assert!(matches!(&fetched, Ok(Fetched::Body { bytes, .. }) if &bytes[..] == b"hi"), "{fetched:?}");
    let untrusted = source(None).fetch(fetch(), &mut Unbounded).await;
    assert!(matches!(untrusted, Err(media_source::Error::Unreachable { .. })), "{untrusted:?}");
}
