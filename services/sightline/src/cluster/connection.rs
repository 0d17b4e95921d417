//! What every process of a cluster is told alike: where NATS and etcd are, and as whom to speak there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapter_etcd::EtcdRegistry;
use adapter_etcd::config::Error as EtcdError;
use adapter_http::{Authorities, EngineConfig, HttpEngine, TlsFiles};
use adapter_nats::{Credentials, NatsBus};
use anyhow::{Context, bail};
use clap::Args;
use ports::bus::Link;
use ports::{Bus, Clock, Registry, StateStore, TokioClock, masked_url};
use serde::{Deserialize, Serialize};
use telemetry::TracedBus;
use tokio::task::JoinSet;

use crate::cluster::secrets;

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
    /// The cluster's secret, mixed into block keys and into tenants' names.
    #[arg(long, default_value_t = Self::default().secret)]
    secret: String,
    /// File with the cluster's secret.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// PEM file of the certificate that the own listeners show; with it they speak TLS. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the key of the listeners' certificate.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// PEM file of authorities to trust beside the system's, for engines and media origins that speak TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// URLs of NATS servers, nats:// or tls://, separated by commas.
    #[arg(long, value_name = "URL", value_delimiter = ',', default_values_t = Self::default().nats)]
    pub(crate) nats: Vec<String>,
    /// User at NATS.
    #[arg(long)]
    pub(crate) nats_user: Option<String>,
    /// Password of the user at NATS.
    #[arg(long)]
    nats_password: Option<String>,
    /// File with the password of the user at NATS.
    #[arg(long, value_name = "FILE")]
    nats_password_file: Option<PathBuf>,
    /// Token for NATS.
    #[arg(long)]
    nats_token: Option<String>,
    /// File with the token for NATS.
    #[arg(long, value_name = "FILE")]
    nats_token_file: Option<PathBuf>,
    /// Seed of an nkey for NATS.
    #[arg(long)]
    nats_nkey: Option<String>,
    /// File with the seed of an nkey for NATS.
    #[arg(long, value_name = "FILE")]
    nats_nkey_file: Option<PathBuf>,
    /// A .creds file for NATS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// PEM file of authorities to trust for NATS in place of the system's; demands TLS.
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
    etcd_password: Option<String>,
    /// File with the password of the user at etcd.
    #[arg(long, value_name = "FILE")]
    etcd_password_file: Option<PathBuf>,
    /// PEM file of authorities to trust for etcd; demands TLS, and https:// demands it.
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
            secret_file: None,
            tls_cert: None,
            tls_key: None,
            tls_ca: None,
            nats: vec!["nats://127.0.0.1:4222".to_owned()],
            nats_user: None,
            nats_password: None,
            nats_password_file: None,
            nats_token: None,
            nats_token_file: None,
            nats_nkey: None,
            nats_nkey_file: None,
            nats_creds: None,
            nats_ca: None,
            nats_cert: None,
            nats_key: None,
            etcd: vec!["http://127.0.0.1:2379".to_owned()],
            etcd_user: None,
            etcd_password: None,
            etcd_password_file: None,
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
    /// Connects; does not wait for servers that are late, but says so. One that answers and refuses is an error: what
    /// was configured is wrong, and waiting would hide it.
    ///
    /// # Errors
    /// Says which option cannot be used, or which server refuses what.
    pub(crate) async fn connect(&self, name: &str) -> anyhow::Result<Wires> {
        let nats = NatsBus::connect(&self.nats_config(name)?).await.context("--nats")?;
        let bus: Arc<dyn Bus> = Arc::new(TracedBus::over(Arc::new(nats.clone())));
        let etcd = EtcdRegistry::connect(&self.etcd_config()?).await.context("--etcd")?;
        let prefix = wire::registry_key::workers(&self.namespace);
        if let Err(refused @ EtcdError::Refused { .. }) = etcd.check(&prefix).await {
            return Err(refused).context("--etcd");
        }
        let registry: Arc<dyn Registry> = Arc::new(etcd.clone());
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::system());
        let mut watchers = JoinSet::new();
        watchers.spawn(watch_bus(nats.clone(), masked_url(&self.nats.join(","))));
        watchers.spawn(watch_registry(etcd, prefix, Arc::clone(&clock)));
        Ok(Wires { nats, bus, registry, clock, _watchers: watchers })
    }

    /// Returns the cluster's secret; empty where there is none.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub(crate) fn secret(&self) -> anyhow::Result<String> {
        let given = Some(self.secret.as_str()).filter(|secret| !secret.is_empty());
        Ok(secrets::reveal("secret", given, self.secret_file.as_deref())?.unwrap_or_default())
    }

    /// Returns what the own listeners show; none where they speak plain HTTP.
    ///
    /// # Errors
    /// One of the two files is missing.
    pub(crate) fn tls(&self) -> anyhow::Result<Option<TlsFiles>> {
        let files = pair(self.tls_cert.as_deref(), self.tls_key.as_deref());
        let files = files.context("--tls-cert and --tls-key go together")?;
        Ok(files.map(|(certificate, key)| TlsFiles { certificate, key }))
    }

    /// Returns the client for engines.
    ///
    /// # Errors
    /// The file of authorities cannot be used.
    pub(crate) fn engine(&self) -> anyhow::Result<Arc<HttpEngine>> {
        let authorities = Authorities::read(self.tls_ca.as_deref()).context("--tls-ca")?;
        Ok(Arc::new(HttpEngine::new(EngineConfig { authorities, ..EngineConfig::default() })))
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
        let token =
            secrets::reveal("nats-token", self.nats_token.as_deref(), self.nats_token_file.as_deref())?;
        let seed = secrets::reveal("nats-nkey", self.nats_nkey.as_deref(), self.nats_nkey_file.as_deref())?;
        let given = (&self.nats_user, token, seed, &self.nats_creds);
        Ok(match given {
            (None, None, None, None) => Credentials::None,
            (Some(name), None, None, None) => {
                let (password, file) = (self.nats_password.as_deref(), self.nats_password_file.as_deref());
                let password = secrets::reveal("nats-password", password, file)?.unwrap_or_default();
                Credentials::User { name: name.clone(), password }
            }
            (None, Some(token), None, None) => Credentials::Token(token),
            (None, None, Some(seed), None) => Credentials::Nkey(seed),
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
        let (password, file) = (self.etcd_password.as_deref(), self.etcd_password_file.as_deref());
        let password = secrets::reveal("etcd-password", password, file)?;
        let user = self.etcd_user.clone().map(|name| (name, password.unwrap_or_default()));
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

async fn watch_bus(bus: NatsBus, servers: String) {
    let mut link = bus.link();
    if tokio::time::timeout(LATE, link.wait_for(|link| *link == Link::Up)).await.is_err() {
        let cause = bus.trouble();
        tracing::warn!(servers, cause, "NATS does not answer yet, trying on");
    }
}

async fn watch_registry(registry: EtcdRegistry, prefix: String, clock: Arc<dyn Clock>) {
    let began = clock.now();
    let mut warned = false;
    while let Err(cause) = registry.check(&prefix).await {
        if !warned && clock.now().saturating_sub(began) >= LATE {
            let cause = anyhow::Error::from(cause);
            tracing::warn!(cause = format!("{cause:#}"), "etcd does not answer yet, trying on");
            warned = true;
        }
        clock.sleep(LOOK).await;
    }
    tracing::info!("registry connected");
}

#[cfg(test)]
mod tests {
    use super::*;

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
