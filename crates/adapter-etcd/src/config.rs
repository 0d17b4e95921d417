//! How a process connects to etcd.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

/// Where etcd is and who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// URLs of the cluster's members, at least one; `http://`, or `https://` with `tls`.
    pub endpoints: Vec<String>,
    /// Name and password of the user, where authentication is on.
    pub user: Option<(String, String)>,
    /// Encryption.
    pub tls: Option<Tls>,
}

impl fmt::Debug for Config {
    /// Shows no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .finish()
    }
}

/// How the connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of authorities to trust.
    pub ca_file: Option<PathBuf>,
    /// PEM files of the client's own certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have, where it is not the URL's host.
    pub domain: Option<String>,
}

/// Why no client could be made; a server that is down is not a reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no endpoint.
    #[error("no endpoint given")]
    NoEndpoint,
    /// A certificate or key cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The endpoints or certificates cannot be used.
    #[error("cannot connect to {endpoints}")]
    Connect {
        /// The endpoints.
        endpoints: String,
        /// Why.
        #[source]
        source: etcd_client::Error,
    },
}

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// A dead peer is noticed after the sum of the two.
const PING_PERIOD: Duration = Duration::from_secs(3);
const PING_DEADLINE: Duration = Duration::from_secs(2);

impl Config {
    /// Translates to the client's options; reads certificate files.
    pub(crate) async fn options(&self) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_DEADLINE)
            .with_keep_alive(PING_PERIOD, PING_DEADLINE)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.options().await?);
        }
        Ok(options)
    }
}

impl Tls {
    async fn options(&self) -> Result<TlsOptions, Error> {
        let mut options = TlsOptions::new();
        if let Some(path) = &self.ca_file {
            options = options.ca_certificate(Certificate::from_pem(read(path).await?));
        }
        if let Some((certificate, key)) = &self.client {
            options = options.identity(Identity::from_pem(read(certificate).await?, read(key).await?));
        }
        if let Some(domain) = &self.domain {
            options = options.domain_name(domain);
        }
        Ok(options)
    }
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path).await.map_err(|source| Error::File { path: path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_not_shown() {
        let user = Some(("root".to_owned(), "hidden".to_owned()));
        let shown = format!("{:?}", Config { user, ..Config::default() });
        assert!(shown.contains("root") && !shown.contains("hidden"), "{shown}");
    }
}
