//! A certificate and its key, read again when their files change.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{TlsError, TlsFiles};

/// The certificate shown now, and what the files held when they were last looked at.
#[derive(Debug)]
pub(super) struct Certificates {
    files: TlsFiles,
    shown: Mutex<Arc<CertifiedKey>>,
    seen: Mutex<Contents>,
}

/// What the files hold; shows nothing of it.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contents")
    }
}

impl Certificates {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = Contents {
            certificate: std::fs::read(&files.certificate).map_err(unreadable(&files.certificate))?,
            key: std::fs::read(&files.key).map_err(unreadable(&files.key))?,
        };
        let shown = Mutex::new(Arc::new(contents.certified(&files)?));
        Ok(Self { files, shown, seen: Mutex::new(contents) })
    }

    /// Reads the files again. What cannot be used, since one of the two is new and the other is not yet, leaves the
    /// certificate as it is.
    pub(super) async fn renew(&self) {
        let read = async {
            let certificate = tokio::fs::read(&self.files.certificate);
            Ok::<_, io::Error>(Contents {
                certificate: certificate.await?,
                key: tokio::fs::read(&self.files.key).await?,
            })
        };
        let contents = match read.await {
            Ok(contents) => contents,
            Err(cause) => return tracing::debug!(%cause, "certificate cannot be read again"),
        };
        if *self.seen.lock() == contents {
            return;
        }
        let certificate = self.files.certificate.display();
        match contents.certified(&self.files) {
            Ok(certified) => {
                *self.shown.lock() = Arc::new(certified);
                tracing::info!(%certificate, "certificate renewed");
            }
            Err(cause) => {
                tracing::warn!(%certificate, %cause, "new certificate cannot be used, keeping the old");
            }
        }
        *self.seen.lock() = contents;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.lock()))
    }
}

impl Contents {
    fn certified(&self, files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| empty(&files.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| empty(&files.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|source| TlsError::Unusable {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        })
    }
}

/// Makes the server's side: TLS 1.2 and 1.3, HTTP/1.1, no client certificates.
pub(super) fn config(certificates: &Arc<Certificates>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(rustls::DEFAULT_VERSIONS);
    #[expect(clippy::expect_used, reason = "ring has cipher suites for both versions")]
    let builder = builder.expect("versions and cipher suites of one provider go together");
    let mut config =
        builder.with_no_client_auth().with_cert_resolver(Arc::<Certificates>::clone(certificates));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> TlsError {
    let path = path.to_owned();
    move |source| TlsError::Unreadable { path, source }
}

fn empty(path: &Path, wanted: &'static str) -> TlsError {
    TlsError::Empty { path: path.to_owned(), wanted }
}
