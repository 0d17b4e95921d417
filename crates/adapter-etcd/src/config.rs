//! How a process connects to etcd.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use tonic::Code;

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
        source: io::Error,
    },
    /// The endpoints or certificates cannot be used.
    #[error("cannot connect to {endpoints}")]
    Connect {
        /// The endpoints, without credentials.
        endpoints: String,
        /// Why.
        #[source]
        source: etcd_client::Error,
    },
    /// An endpoint is `https://`, and nobody is trusted: the system's authorities are not asked.
    #[error("{endpoint} needs a file of authorities to trust")]
    NoAuthority {
        /// The endpoint.
        endpoint: String,
    },
    /// A member answers, and does not take this client or cannot be trusted: trying again would not help.
    #[error("no connection to {endpoints}: {reason}")]
    Refused {
        /// The endpoints, without credentials.
        endpoints: String,
        /// What is wrong.
        reason: Refusal,
        /// The client's words.
        #[source]
        source: etcd_client::Error,
    },
    /// No member answers now.
    #[error("{endpoints} does not answer")]
    Late {
        /// The endpoints, without credentials.
        endpoints: String,
        /// The client's words; none where it said nothing in time.
        #[source]
        source: Option<etcd_client::Error>,
    },
}

/// Why a member and a client that reached each other cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The member does not know the user or the password, or wants one.
    Credentials,
    /// The user may not read or write there.
    Permission,
    /// One of the two does not trust the other's certificate.
    Certificate,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credentials => "etcd refuses the credentials",
            Self::Permission => "etcd refuses access",
            Self::Certificate => "TLS fails",
        })
    }
}

impl Refusal {
    /// Tells a refusal from a member that is only late.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other codes are those of a member in trouble")]
    pub(crate) fn of(error: &etcd_client::Error) -> Option<Self> {
        if let etcd_client::Error::TransportError(error) = error {
            return of_tls(error).then_some(Self::Certificate);
        }
        let etcd_client::Error::GRpcStatus(status) = error else { return None };
        // etcd's own words for a wrong password, for none, and for a user where none are known.
        let about_users = ["authentication", "user name"].iter().any(|word| status.message().contains(word));
        match status.code() {
            Code::Unauthenticated => Some(Self::Credentials),
            Code::PermissionDenied => Some(Self::Permission),
            Code::InvalidArgument | Code::FailedPrecondition if about_users => Some(Self::Credentials),
            _ if of_tls(status) => Some(Self::Certificate),
            _ => None,
        }
    }
}

/// Tells whether TLS is at fault: what it says travels inside of an I/O error.
fn of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        let inside = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if current.is::<rustls::Error>() || inside.is_some_and(|inside| inside.is::<rustls::Error>()) {
            return true;
        }
        cause = current.source();
    }
    false
}

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// A dead peer is noticed after the sum of the two.
const PING_PERIOD: Duration = Duration::from_secs(3);
const PING_DEADLINE: Duration = Duration::from_secs(2);

impl Config {
    /// The endpoints as they may be shown.
    pub(crate) fn shown(&self) -> String {
        ports::masked_url(&self.endpoints.join(","))
    }

    /// Translates to the client's options; reads certificate files.
    pub(crate) async fn options(&self) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_DEADLINE)
            .with_keep_alive(PING_PERIOD, PING_DEADLINE)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        let trusts = self.tls.as_ref().is_some_and(|tls| tls.ca_file.is_some());
        if let (false, Some(https)) = (trusts, self.endpoints.iter().find(|it| it.starts_with("https:"))) {
            return Err(Error::NoAuthority { endpoint: ports::masked_url(https) });
        }
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
