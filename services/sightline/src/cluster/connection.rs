//! What every process of a cluster is told alike: where NATS and etcd are, and as whom to speak there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapter_etcd::EtcdRegistry;
use adapter_nats::{Credentials, NatsBus};
use anyhow::{Context, bail};
use clap::Args;
use ports::bus::Link;
use ports::{Bus, Clock, Registry, StateStore, TokioClock};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

/// How long NATS or etcd may be late before it is worth a warning.
const LATE: Duration = Duration::from_secs(5);
/// Pause between looks at whether they are there.
const LOOK: Duration = Duration::from_millis(250);

/// How a process takes part in a cluster; `[cluster]` in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Connection {
    /// Namespace of workers and subjects: processes of one see nothing of another.
    #[arg(long, default_value_t = Self::default().namespace)]
    pub(crate) namespace: String,
    /// The cluster's secret, mixed into block keys.
    #[arg(long, default_value_t = Self::default().secret)]
    pub(crate) secret: String,
    /// URLs of NATS servers, nats:// or tls://, separated by commas.
    #[arg(long, value_name = "URL", value_delimiter = ',', default_values_t = Self::default().nats)]
    pub(crate) nats: Vec<String>,
    /// User at NATS.
    #[arg(long)]
    pub(crate) nats_user: Option<String>,
    /// Password of the user at NATS.
    #[arg(long)]
    pub(crate) nats_password: Option<String>,
    /// Token for NATS.
    #[arg(long)]
    pub(crate) nats_token: Option<String>,
    /// Seed of an nkey for NATS.
    #[arg(long)]
    pub(crate) nats_nkey: Option<String>,
    /// A .creds file for NATS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// PEM file of authorities to trust for NATS beside the system's; demands TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_ca: Option<PathBuf>,
    /// PEM file of the own certificate for NATS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_cert: Option<PathBuf>,
    /// PEM file of the key of the own certificate for NATS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_key: Option<PathBuf>,
    /// URLs of etcd members, separated by commas.
    #[arg(long, value_name = "URL", value_delimiter = ',', default_values_t = Self::default().etcd)]
    pub(crate) etcd: Vec<String>,
    /// User at etcd.
    #[arg(long)]
    pub(crate) etcd_user: Option<String>,
    /// Password of the user at etcd.
    #[arg(long)]
    pub(crate) etcd_password: Option<String>,
    /// PEM file of authorities to trust for etcd; demands TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// PEM file of the own certificate for etcd.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// PEM file of the key of the own certificate for etcd.
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// Name in etcd's certificate, where it is not the URL's host.
    #[arg(long, value_name = "NAME")]
    pub(crate) etcd_domain: Option<String>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            secret: String::new(),
            nats: vec!["nats://127.0.0.1:4222".to_owned()],
            nats_user: None,
            nats_password: None,
            nats_token: None,
            nats_nkey: None,
            nats_creds: None,
            nats_ca: None,
            nats_cert: None,
            nats_key: None,
            etcd: vec!["http://127.0.0.1:2379".to_owned()],
            etcd_user: None,
            etcd_password: None,
            etcd_ca: None,
            etcd_cert: None,
            etcd_key: None,
            etcd_domain: None,
        }
    }
}

/// The cluster's ports, connected or still trying.
#[derive(Debug)]
pub(crate) struct Wires {
    /// The bus once more, for what only NATS has.
    pub(crate) nats: NatsBus,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) clock: Arc<dyn Clock>,
    _watchers: JoinSet<()>,
}

impl Connection {
    /// Connects; does not wait for servers that are late, but says so.
    ///
    /// # Errors
    /// Says which option cannot be used.
    pub(crate) async fn connect(&self, name: &str) -> anyhow::Result<Wires> {
        let nats = NatsBus::connect(&self.nats_config(name)?).await.context("--nats")?;
        let bus: Arc<dyn Bus> = Arc::new(nats.clone());
        let etcd = EtcdRegistry::connect(&self.etcd_config()?).await.context("--etcd")?;
        let registry: Arc<dyn Registry> = Arc::new(etcd);
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::system());
        let mut watchers = JoinSet::new();
        watchers.spawn(watch_bus(Arc::clone(&bus), self.nats.join(",")));
        let prefix = wire::registry_key::workers(&self.namespace);
        watchers.spawn(watch_registry(
            Arc::clone(&registry),
            (prefix, self.etcd.join(",")),
            Arc::clone(&clock),
        ));
        Ok(Wires { nats, bus, registry, clock, _watchers: watchers })
    }

    fn nats_config(&self, name: &str) -> anyhow::Result<adapter_nats::Config> {
        let client = pair(self.nats_cert.as_deref(), self.nats_key.as_deref())
            .context("--nats-cert and --nats-key go together")?;
        let tls = (self.nats_ca.is_some() || client.is_some())
            .then(|| adapter_nats::Tls { ca_file: self.nats_ca.clone(), client });
        Ok(adapter_nats::Config {
            servers: self.nats.clone(),
            name: format!("sightline-{name}"),
            credentials: self.nats_credentials()?,
            tls,
        })
    }

    fn nats_credentials(&self) -> anyhow::Result<Credentials> {
        let given = (&self.nats_user, &self.nats_token, &self.nats_nkey, &self.nats_creds);
        Ok(match given {
            (None, None, None, None) => Credentials::None,
            (Some(name), None, None, None) => Credentials::User {
                name: name.clone(),
                password: self.nats_password.clone().unwrap_or_default(),
            },
            (None, Some(token), None, None) => Credentials::Token(token.clone()),
            (None, None, Some(seed), None) => Credentials::Nkey(seed.clone()),
            (None, None, None, Some(file)) => {
                let read = std::fs::read_to_string(file);
                Credentials::Creds(
                    read.with_context(|| format!("cannot read --nats-creds {}", file.display()))?,
                )
            }
            _ => bail!("give one of --nats-user, --nats-token, --nats-nkey and --nats-creds"),
        })
    }

    fn etcd_config(&self) -> anyhow::Result<adapter_etcd::Config> {
        let client = pair(self.etcd_cert.as_deref(), self.etcd_key.as_deref())
            .context("--etcd-cert and --etcd-key go together")?;
        let tls = (self.etcd_ca.is_some() || client.is_some()).then(|| adapter_etcd::Tls {
            ca_file: self.etcd_ca.clone(),
            client,
            domain: self.etcd_domain.clone(),
        });
        let password = || self.etcd_password.clone().unwrap_or_default();
        let user = self.etcd_user.clone().map(|name| (name, password()));
        Ok(adapter_etcd::Config { endpoints: self.etcd.clone(), user, tls })
    }
}

/// Opens the place below a cache directory where the workers last seen are kept.
///
/// # Errors
/// The directory cannot be used.
pub(crate) fn last_view(cache_dir: Option<&Path>) -> anyhow::Result<Option<Arc<dyn StateStore>>> {
    let Some(dir) = cache_dir.map(|dir| dir.join("workers")) else { return Ok(None) };
    let opened = agent::StateDir::open(&dir);
    let opened = opened.with_context(|| format!("--cache-dir: {} cannot be used", dir.display()))?;
    Ok(Some(Arc::new(opened)))
}

/// Puts a certificate and its key together; fails if one is missing.
fn pair(certificate: Option<&Path>, key: Option<&Path>) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate.to_owned(), key.to_owned()))),
        (None, None) => Ok(None),
        _ => bail!("one of the two is missing"),
    }
}

async fn watch_bus(bus: Arc<dyn Bus>, servers: String) {
    let mut link = bus.link();
    if tokio::time::timeout(LATE, link.wait_for(|link| *link == Link::Up)).await.is_err() {
        tracing::warn!(servers = masked_url(&servers), "NATS does not answer yet, trying on");
    }
}

async fn watch_registry(
    registry: Arc<dyn Registry>,
    (prefix, members): (String, String),
    clock: Arc<dyn Clock>,
) {
    let began = clock.now();
    let mut warned = false;
    while let Err(cause) = registry.list(&prefix).await {
        if !warned && clock.now().saturating_sub(began) >= LATE {
            tracing::warn!(members, %cause, "etcd does not answer yet, trying on");
            warned = true;
        }
        clock.sleep(LOOK).await;
    }
    tracing::info!("registry connected");
}

/// Hides what stands between scheme and host of a URL.
pub(crate) fn masked_url(url: &str) -> String {
    let mask = |part: &str| match (part.find("://"), part.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            let (head, tail) = (part.get(..scheme + 3), part.get(at..));
            format!("{}***{}", head.unwrap_or_default(), tail.unwrap_or_default())
        }
        _ => part.to_owned(),
    };
    url.split(',').map(mask).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_hidden() {
        for (url, shown) in [
            ("nats://a:b@h:4222", "nats://***@h:4222"),
            ("nats://h:4222,tls://t@h2", "nats://h:4222,tls://***@h2"),
            ("h:4222", "h:4222"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }

    #[test]
    fn one_identity_at_a_time() {
        let user = Connection { nats_user: Some("a".to_owned()), ..Connection::default() };
        assert!(matches!(user.nats_credentials().unwrap(), Credentials::User { .. }));
        let both = Connection { nats_token: Some("t".to_owned()), ..user };
        assert!(both.nats_credentials().is_err());
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let half = Connection { etcd_cert: Some(PathBuf::from("c.pem")), ..Connection::default() };
        assert!(half.etcd_config().is_err());
        let none = Connection::default().etcd_config().unwrap();
        assert_eq!(none.tls, None);
    }
}
