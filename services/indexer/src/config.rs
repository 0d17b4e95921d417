//! Everything that an indexer can be told.

use std::net::SocketAddr;
use std::path::PathBuf;

use adapter_http::TlsFiles;
use clap::Args;
use serde::{Deserialize, Serialize};

/// Configuration of one indexer.
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where queries, health, metrics and the index are served; port 0 takes a free one.
    #[arg(long, default_value_t = Self::default().listen)]
    pub listen: SocketAddr,
    /// Holders in the index of one model.
    #[arg(long, default_value_t = Self::default().index_holders_max)]
    pub index_holders_max: u32,
    /// Distinct blocks in the index of one model.
    #[arg(long, default_value_t = Self::default().index_blocks_max)]
    pub index_blocks_max: u32,
    /// Bytes of a query's body.
    #[arg(long, default_value_t = Self::default().body_bytes_max)]
    pub body_bytes_max: usize,
    /// Directory where the workers last seen are kept; none forgets them at the end.
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Namespace of workers and subjects; the cluster's.
    #[arg(skip)]
    #[serde(skip)]
    pub namespace: String,
    /// The cluster's secret, mixed into block keys.
    #[arg(skip)]
    #[serde(skip)]
    pub secret: String,
    /// Certificate and key of the listener; none speaks plain HTTP.
    #[arg(skip)]
    #[serde(skip)]
    pub tls: Option<TlsFiles>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8200)),
            index_holders_max: 1024,
            index_blocks_max: 64 << 20,
            body_bytes_max: 8 << 20,
            cache_dir: None,
            namespace: "default".to_owned(),
            secret: String::new(),
            tls: None,
        }
    }
}
