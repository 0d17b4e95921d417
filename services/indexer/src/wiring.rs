//! An indexer put together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{DirectoryArgs, DirectoryHandle};
use adapter_http::Listener;
use ports::{Bus, Clock, Engine, Registry, StateStore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::desks::{Desks, Parts};
use crate::lookups::Lookups;
use crate::query::Queries;
use crate::surface::{self, Surface};

/// How long answers may take to finish at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// What an indexer is connected to.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The event plane.
    pub bus: Arc<dyn Bus>,
    /// Discovery.
    pub registry: Arc<dyn Registry>,
    /// Engines, for probing suspects.
    pub engine: Arc<dyn Engine>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where the workers last seen are kept for a restart while the registry is away; none forgets them.
    pub last_view: Option<Arc<dyn StateStore>>,
}

/// A running indexer. Dropping it ends it at once; `stop` lets answers finish.
#[derive(Debug)]
pub struct Indexer {
    address: SocketAddr,
    queries: Queries,
    stop: CancellationToken,
    surface: JoinSet<()>,
    _follower: JoinSet<()>,
    _node: Node,
}

impl Indexer {
    /// Starts to follow the workers of a namespace and to answer.
    ///
    /// # Errors
    /// The listener cannot be bound, or an actor does not start.
    pub async fn start(config: &Config, ports: Ports) -> anyhow::Result<Self> {
        let listener = Listener::bind(config.listen, config.tls.as_ref()).await?;
        let address = listener.address();
        let node = Node::start(&format!("indexer-{address}"));
        let directory = DirectoryArgs {
            namespace: config.namespace.clone(),
            registry: ports.registry,
            engine: ports.engine,
            clock: Arc::clone(&ports.clock),
            bounds: membership::presence::Bounds::default(),
            last_view: ports.last_view,
        };
        let desks = Desks::new(DirectoryHandle::start(&node, directory).await?);
        let queries = Queries::new(desks.clone(), &config.secret);
        let lookups = Lookups {
            namespace: config.namespace.clone(),
            bus: Arc::clone(&ports.bus),
            clock: Arc::clone(&ports.clock),
            desks: desks.clone(),
            answered: queries.lookups(),
        };
        let parts = Parts {
            namespace: config.namespace.clone(),
            node: node.clone(),
            bus: ports.bus,
            clock: Arc::clone(&ports.clock),
            limits: block_index::Limits {
                holders_max: config.index_holders_max,
                blocks_max: config.index_blocks_max,
            },
            seed: ports.clock.wall_ms() ^ u64::from(address.port()) << 48,
        };
        let stop = CancellationToken::new();
        let mut surface = JoinSet::new();
        let served = Surface::new(desks.clone(), queries.clone(), ports.clock);
        surface.spawn(surface::serve(listener, served, config.body_bytes_max, stop.clone()));
        let mut follower = JoinSet::new();
        follower.spawn(desks.follow(parts));
        follower.spawn(lookups.follow());
        Ok(Self { address, queries, stop, surface, _follower: follower, _node: node })
    }

    /// Returns where it answers over HTTP.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what answers, for other wires.
    #[must_use]
    pub const fn queries(&self) -> &Queries {
        &self.queries
    }

    /// Takes no new connections, lets answers finish, and ends.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let finished = async { while self.surface.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, finished).await.is_err() {
            tracing::warn!("answers were still running at the end");
        }
    }
}
