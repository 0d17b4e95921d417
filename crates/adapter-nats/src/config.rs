//! How a process connects to NATS.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, rustls};

/// Where NATS is and who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// URLs of the cluster's servers, at least one; `nats://` or `tls://`.
    pub servers: Vec<String>,
    /// What the server shows for this client.
    pub name: String,
    /// Who the client is.
    pub credentials: Credentials,
    /// Encryption; none for plain TCP unless a URL says `tls://`.
    pub tls: Option<Tls>,
}

/// Who a client is.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody in particular.
    #[default]
    None,
    /// A user with a password.
    User {
        /// Its name.
        name: String,
        /// Its password.
        password: String,
    },
    /// The bearer of a token.
    Token(String),
    /// The owner of an nkey, by its seed.
    Nkey(String),
    /// A `.creds` file's contents: a JWT and its seed.
    Creds(String),
}

impl fmt::Debug for Credentials {
    /// Shows the kind and the user's name only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::User { name, .. } => write!(f, "User({name:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::Nkey(_) => f.write_str("Nkey"),
            Self::Creds(_) => f.write_str("Creds"),
        }
    }
}

/// How the connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of authorities to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files of the client's own certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why no client could be made; a server that is down is not a reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The credentials are malformed.
    #[error("malformed credentials")]
    Credentials(#[source] io::Error),
    /// The addresses cannot be used.
    #[error("cannot connect to {servers}")]
    Connect {
        /// The addresses, without credentials.
        servers: String,
        /// Why.
        #[source]
        source: ConnectError,
    },
    /// A server answers, and does not take this client or cannot be trusted: trying again would not help.
    #[error("no connection to {servers}: {reason}")]
    Refused {
        /// The addresses, without credentials.
        servers: String,
        /// What is wrong.
        reason: Refusal,
        /// The client's words.
        #[source]
        source: ConnectError,
    },
    /// An address carries a user or a token, which the client would ignore.
    #[error("credentials in the address {server} are not used")]
    InAddress {
        /// The address, without the credentials.
        server: String,
    },
    /// There is no address.
    #[error("no server given")]
    NoServer,
}

/// Why a server and a client that reached each other cannot work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server does not know the user, password, token or key.
    Credentials,
    /// One of the two does not trust the other's certificate, or they do not agree on TLS.
    Certificate,
    /// A certificate or key file cannot be used.
    Files,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credentials => "the server refuses the credentials",
            Self::Certificate => "TLS fails",
            Self::Files => "certificate files cannot be used",
        })
    }
}

impl Refusal {
    /// Tells a refusal from a server that is only late.
    pub(crate) fn of(error: &ConnectError) -> Option<Self> {
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                Some(Self::Credentials)
            }
            ConnectErrorKind::Tls => Some(Self::Files),
            ConnectErrorKind::Io => of_tls(error).then_some(Self::Certificate),
            ConnectErrorKind::ServerParse
            | ConnectErrorKind::Dns
            | ConnectErrorKind::TimedOut
            | ConnectErrorKind::MaxReconnects => None,
        }
    }
}

/// Tells whether TLS is at fault: what it says travels inside of an I/O error.
fn of_tls(error: &ConnectError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(current) = cause {
        let inside = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if current.is::<rustls::Error>() || inside.is_some_and(|inside| inside.is::<rustls::Error>()) {
            return true;
        }
        cause = current.source();
    }
    false
}

const RECONNECT_MIN: Duration = Duration::from_millis(20);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// A dead peer is noticed after two of these.
const PING_PERIOD: Duration = Duration::from_secs(2);
/// Messages of a subscription that wait in the client before the adapter's own queue takes them.
const CLIENT_QUEUE_MAX: usize = 65_536;

impl Config {
    /// Says what is wrong with the addresses themselves.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.servers.is_empty() {
            return Err(Error::NoServer);
        }
        match self.servers.iter().find(|server| server.contains('@')) {
            Some(server) => Err(Error::InAddress { server: ports::masked_url(server) }),
            None => Ok(()),
        }
    }

    /// The addresses as they may be shown.
    pub(crate) fn shown(&self) -> String {
        ports::masked_url(&self.servers.join(","))
    }

    /// Translates to the client's options.
    pub(crate) fn options(&self) -> Result<ConnectOptions, Error> {
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .max_reconnects(None)
            .reconnect_delay_callback(pause)
            .connection_timeout(CONNECT_DEADLINE)
            .ping_interval(PING_PERIOD)
            .subscription_capacity(CLIENT_QUEUE_MAX);
        options = match &self.credentials {
            Credentials::None => options,
            Credentials::User { name, password } => options.user_and_password(name.clone(), password.clone()),
            Credentials::Token(token) => options.token(token.clone()),
            Credentials::Nkey(seed) => options.nkey(seed.clone()),
            Credentials::Creds(creds) => options.credentials(creds).map_err(Error::Credentials)?,
        };
        if let Some(tls) = &self.tls {
            options = options.require_tls(true);
            if let Some(ca_file) = &tls.ca_file {
                options = options.add_root_certificates(ca_file.clone());
            }
            if let Some((certificate, key)) = &tls.client {
                options = options.add_client_certificate(certificate.clone(), key.clone());
            }
        }
        Ok(options)
    }
}

/// Doubles from 20 ms up to 500 ms.
fn pause(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    RECONNECT_MIN.saturating_mul(1 << doublings).min(RECONNECT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_second() {
        let pauses: Vec<u128> = (0..9).map(|attempts| pause(attempts).as_millis()).collect();
        assert_eq!(pauses, [20, 20, 40, 80, 160, 320, 500, 500, 500]);
        assert_eq!(pause(usize::MAX), RECONNECT_MAX);
    }

    #[test]
    fn secrets_are_not_shown() {
        let credentials = Credentials::User { name: "a".to_owned(), password: "hidden".to_owned() };
        let config = Config { credentials, ..Config::default() };
        assert!(!format!("{config:?}").contains("hidden"));
    }
}
