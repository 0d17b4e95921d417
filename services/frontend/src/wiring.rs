//! A frontend put together.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actor_kit::Node;
use actors::{
    Bitmaps, DirectoryArgs, DirectoryHandle, IndexShelf, Ledger, LoadBoardArgs, LoadBoardHandle,
    MediaListener, Preprocessor, RemoteIndex, bitmaps, preprocessor,
};
use adapter_http::{Authorities, Bounds, Listener, TlsFiles};
use anyhow::Context;
use identity::Incarnation;
use media_probe::AddressPolicy;
use ports::{Bus, Clock, Engine, MediaSource, Registry, StateStore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::access::Access;
use crate::commands::Commands;
use crate::config::{Config, HandOverConfig, IndexPlace, MediaConfig};
use crate::courier::Courier;
use crate::hand_over::{HandOver, Way};
use crate::lessons::Lessons;
use crate::loaded_models::{LoadedModels, MediaOverrides, load_models};
use crate::media_address::MediaAddress;
use crate::media_parts::MediaParts;
use crate::media_surface::MediaSurface;
use crate::metrics::Metrics;
use crate::model_cache::ModelCache;
use crate::model_desk::DeskParts;
use crate::model_supply::ModelSupply;
use crate::models::Models;
use crate::presence;
use crate::record_log::RecordLog;
use crate::request_body::Bodies;
use crate::request_id::RequestIds;
use crate::retry_budget::RetryBudget;
use crate::server;
use crate::shared::{Defaults, Shared};
use crate::surface::Surface;
use crate::understanding::Reader;
use crate::verification::Streaks;

/// What a frontend is connected to.
#[derive(Clone, Debug)]
pub struct Ports {
    /// The event plane.
    pub bus: Arc<dyn Bus>,
    /// Discovery.
    pub registry: Arc<dyn Registry>,
    /// Engines.
    pub engine: Arc<dyn Engine>,
    /// Media origins.
    pub media: Arc<dyn MediaSource>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where the workers last seen are kept for a restart while the registry is away; none forgets them.
    pub last_view: Option<Arc<dyn StateStore>>,
}

/// A running frontend. Dropping it ends it at once; `stop` lets streams finish.
#[derive(Debug)]
pub struct Frontend {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    media_url: Option<String>,
    shared: Arc<Shared>,
    /// How long it says that it leaves before it does.
    notice: Duration,
    drain: Duration,
    tasks: JoinSet<()>,
    _node: Node,
}

/// Makes the ports to engines and media that a configuration describes.
///
/// # Errors
/// Names the network that is no CIDR, or the file of authorities that cannot be used.
pub fn http_ports(config: &Config) -> anyhow::Result<(Arc<dyn Engine>, Arc<dyn MediaSource>)> {
    let authorities = Authorities::read(config.tls_ca.as_deref()).context("--tls-ca")?;
    let engine = adapter_http::EngineConfig {
        authorities: authorities.clone(),
        head: Duration::from_millis(config.limits.head_ms),
        idle: Duration::from_millis(config.limits.idle_ms),
        ..adapter_http::EngineConfig::default()
    };
    let mut media = adapter_http::MediaConfig::new(policy(&config.media)?);
    media.fetches_per_host_max = config.media.fetches_per_host_max;
    media.authorities = authorities;
    Ok((Arc::new(adapter_http::HttpEngine::new(engine)), Arc::new(adapter_http::HttpMediaSource::new(media))))
}

fn policy(config: &MediaConfig) -> anyhow::Result<AddressPolicy> {
    let networks = config.allow_networks.iter().map(|network| {
        network.parse().with_context(|| format!("media.allow_networks: {network:?} is no network"))
    });
    Ok(AddressPolicy::new(networks.collect::<anyhow::Result<_>>()?))
}

impl Frontend {
    /// Starts a frontend: binds its listeners, starts its actors, and serves.
    ///
    /// # Errors
    /// A listener cannot be bound, an actor does not start, or the configuration makes no sense.
    pub async fn start(config: &Config, ports: Ports, models: LoadedModels) -> anyhow::Result<Self> {
        let policy = config.policy.parse().context("policy")?;
        config.check()?;
        let tls = config.tls.as_ref();
        let listener = server::bind(config.listen, tls).await?;
        let address = listener.address();
        let admin = match config.admin_listen {
            Some(admin) => Some(server::bind(admin, tls).await?),
            None => None,
        };
        let admin_address = admin.as_ref().map(Listener::address);
        let media = open_media(&config.media, tls).await?;
        let media_url = media.as_ref().map(|(_, address)| address.base().to_owned());
        let id = name(config, address);
        let node = Node::start(&format!("frontend-{id}"));
        let seed = xxh3_64_with_seed(id.as_bytes(), ports.clock.wall_ms());
        let pool = Preprocessor::new(pool_config(config));
        let parts_of_media = MediaParts::start(config, &ports, &node, (&id, pool.clone())).await?;
        let listeners: Vec<Arc<dyn MediaListener>> = vec![Arc::new(parts_of_media.names.clone())];
        let mut desks = start_actors(config, &ports, &node, (&id, seed)).await?;
        desks.listeners = listeners;
        let models = Models::new(desks.directory.clone(), models);
        let registry = Arc::clone(&ports.registry);
        let supply = ModelSupply {
            namespace: config.namespace.clone(),
            models: models.clone(),
            bus: Arc::clone(&ports.bus),
            clock: Arc::clone(&ports.clock),
            overrides: MediaOverrides::new(config),
            cache: config
                .cache_dir
                .as_deref()
                .map(|dir| ModelCache::open(&dir.join("models")))
                .transpose()?,
        };
        let address_of_media = media.as_ref().map(|(_, address)| address.clone());
        let hand_over = hand_over(&config.media, &ports, &pool, address_of_media);
        let parts = (models, desks.lessons.clone(), pool, hand_over);
        let shared = Arc::new(share(config, (ports, parts_of_media), parts, (id, seed, policy)));
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_indexers(desks.remote.clone(), desks.directory.clone(), shared.stop.clone()));
        tasks.spawn(open_desks(desks, shared.models.clone(), shared.stop.clone()));
        tasks.spawn(supply.run(shared.stop.clone()));
        tasks.spawn(presence::keep(registry, Arc::clone(&shared), (config.namespace.clone(), address)));
        let stall = Duration::from_millis(config.limits.stall_ms);
        let bounds = Bounds { connections_max: config.limits.connections_max, head: HEAD, stall };
        // Operators' own listener is trusted where only this machine reaches it, or where there is no key to ask for.
        let admin_trusted = config.keys.is_empty() || admin_address.is_none_or(|it| it.ip().is_loopback());
        let listeners = [(Some(listener), address.ip().is_loopback(), true), (admin, admin_trusted, false)];
        for (listener, trusted, serves_clients) in listeners {
            let Some(listener) = listener else { continue };
            let access = Access::new(&config.keys, trusted);
            let surface = Surface { shared: Arc::clone(&shared), access, serves_clients };
            tasks.spawn(server::serve(listener, Arc::new(surface), bounds, shared.stop.clone()));
        }
        if let Some((listener, address)) = media {
            let surface = MediaSurface { shared: Arc::clone(&shared), address };
            tasks.spawn(server::serve(listener, Arc::new(surface), bounds, shared.stop.clone()));
        }
        let drain = Duration::from_millis(config.limits.drain_ms);
        let notice = Duration::from_millis(config.limits.leave_ms);
        Ok(Self { address, admin_address, media_url, shared, notice, drain, tasks, _node: node })
    }

    /// Returns where clients connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where operators connect, if there is such a listener.
    #[must_use]
    pub const fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Returns where engines get media, if they are handed over by URL: scheme and authority.
    #[must_use]
    pub fn media_url(&self) -> Option<&str> {
        self.media_url.as_deref()
    }

    /// Returns the frontend's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Returns the directory of workers as this frontend sees it.
    #[must_use]
    pub fn directory(&self) -> &DirectoryHandle {
        self.shared.models.directory()
    }

    /// Says for a while that it is not ready, then takes no new connections, lets answers finish within the configured
    /// time, and ends.
    pub async fn stop(mut self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
        self.shared.clock.sleep(self.notice).await;
        self.shared.stop.cancel();
        let finished = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.drain, finished).await.is_err() {
            tracing::warn!(drain_ms = self.drain.as_millis(), "answers were still running at the end");
        }
    }
}

/// Longest time a request head may take to arrive, and a kept connection may be idle.
const HEAD: Duration = Duration::from_secs(60);

/// Puts together what requests share.
fn share(
    config: &Config,
    (ports, media): (Ports, MediaParts),
    (models, lessons, pool, hand_over): (Models, Lessons, Preprocessor, HandOver),
    (id, seed, policy): (String, u64, placement::Policy),
) -> Shared {
    let reader = Reader {
        models: models.clone(),
        media: media.resolver,
        lessons,
        pool,
        clock: Arc::clone(&ports.clock),
        secret: Arc::from(config.secret.as_str()),
        tenancy: config.tenancy,
    };
    let limits = &config.limits;
    Shared {
        ids: RequestIds::new(&id, seed),
        id,
        models,
        hand_over,
        reader,
        names: media.names,
        facts: media.facts,
        started: ports.clock.now(),
        engine: ports.engine,
        commands: Commands { namespace: config.namespace.clone(), bus: ports.bus },
        clock: ports.clock,
        metrics: Metrics::new(),
        records: RecordLog::new(limits.decisions_kept),
        retries: RetryBudget::new(),
        streaks: Streaks::default(),
        bodies: Bodies::new(config),
        defaults: Defaults {
            policy,
            wait_max: Duration::from_millis(limits.queue_ms),
            keep_authorization: config.keys.is_empty(),
        },
        ready: AtomicBool::new(false),
        leaving: AtomicBool::new(false),
        stop: CancellationToken::new(),
    }
}

/// Without a configured name, one that frontends of the same port do not share even if they start at the same moment.
fn name(config: &Config, address: SocketAddr) -> String {
    if config.id.is_empty() {
        // The standard library's hasher is keyed by the system's random source.
        format!("f{}-{:08x}", address.port(), RandomState::new().hash_one(address) >> 32)
    } else {
        config.id.clone()
    }
}

fn pool_config(config: &Config) -> preprocessor::Config {
    let mut pool = preprocessor::Config::default();
    if config.limits.threads > 0 {
        pool.threads = config.limits.threads;
    }
    pool
}

/// Binds the media listener, where media are handed over by URL.
async fn open_media(
    config: &MediaConfig,
    tls: Option<&TlsFiles>,
) -> anyhow::Result<Option<(Listener, MediaAddress)>> {
    if config.hand_over != HandOverConfig::Url {
        return Ok(None);
    }
    let advertised = config.advertise.as_deref();
    // Engines trust fewer authorities than clients: TLS only if they are told to use it.
    let tls = tls.filter(|_| advertised.is_some_and(|base| base.starts_with("https://")));
    let listener = server::bind(config.listen, tls).await?;
    let address = MediaAddress::new(listener.address(), advertised)?;
    Ok(Some((listener, address)))
}

fn hand_over(
    config: &MediaConfig,
    ports: &Ports,
    pool: &Preprocessor,
    address: Option<MediaAddress>,
) -> HandOver {
    let way = match (config.hand_over, address) {
        (HandOverConfig::Url, Some(address)) => Way::Url(address),
        (HandOverConfig::Data | HandOverConfig::Url, _) => Way::Data,
        (HandOverConfig::File, _) => {
            Way::File(Courier::new(Arc::clone(&ports.engine), Duration::from_millis(config.file_ms)))
        }
    };
    let bounds =
        bitmaps::Config { pixels_max: config.decode_pixels_max, stored_bytes_max: config.decoded_bytes_max };
    HandOver { way, bitmaps: config.decode.then(|| Bitmaps::new(bounds, pool.clone())) }
}

async fn start_actors(
    config: &Config,
    ports: &Ports,
    node: &Node,
    (id, seed): (&str, u64),
) -> anyhow::Result<DeskParts> {
    let directory = DirectoryArgs {
        namespace: config.namespace.clone(),
        registry: Arc::clone(&ports.registry),
        engine: Arc::clone(&ports.engine),
        clock: Arc::clone(&ports.clock),
        bounds: membership::presence::Bounds::default(),
        last_view: ports.last_view.clone(),
    };
    let directory = DirectoryHandle::start(node, directory).await?;
    let ledger = Ledger::default();
    let board = LoadBoardArgs {
        namespace: config.namespace.clone(),
        frontend: id.to_owned(),
        incarnation: Incarnation { started_ms: ports.clock.wall_ms(), nonce: seed },
        bus: Arc::clone(&ports.bus),
        clock: Arc::clone(&ports.clock),
        ledger: ledger.clone(),
        limits: placement::BoardLimits::default(),
    };
    let board = LoadBoardHandle::start(node, board).await?;
    Ok(DeskParts {
        namespace: config.namespace.clone(),
        node: node.clone(),
        bus: Arc::clone(&ports.bus),
        clock: Arc::clone(&ports.clock),
        directory,
        shelf: IndexShelf::default(),
        remote: (config.index == IndexPlace::Remote)
            .then(|| RemoteIndex::new(&config.namespace, Arc::clone(&ports.bus), Arc::clone(&ports.clock))),
        ledger,
        board,
        lessons: Lessons::default(),
        listeners: Vec::new(),
        limits: block_index::Limits {
            holders_max: config.limits.index_holders_max,
            blocks_max: config.limits.index_blocks_max,
        },
        seed,
    })
}

/// Keeps itself told by indexers of how holders stand, where the index is theirs.
async fn follow_indexers(remote: Option<RemoteIndex>, directory: DirectoryHandle, stop: CancellationToken) {
    if let Some(remote) = remote {
        stop.run_until_cancelled(remote.follow(directory)).await.unwrap_or(());
    }
}

/// Starts the actors of every model that appears.
async fn open_desks(parts: DeskParts, models: Models, stop: CancellationToken) {
    let mut changed = parts.directory.changed();
    loop {
        let fleet = parts.directory.fleet();
        let known = models.desks();
        for model in fleet.models().filter(|model| !known.contains_key(*model)) {
            match parts.open(model, &models).await {
                Ok(desk) => models.open(&desk),
                Err(cause) => tracing::error!(%model, %cause, "model cannot be served"),
            }
        }
        tokio::select! {
            news = changed.changed() => if news.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Runs a frontend as a process of its own until `shutdown`, then lets answers finish.
///
/// # Errors
/// As [`Frontend::start`], or a model cannot be loaded.
pub async fn run(config: Config, ports: Ports, shutdown: CancellationToken) -> anyhow::Result<()> {
    let models = load_models(&config)?;
    let frontend = Frontend::start(&config, ports, models).await?;
    tracing::info!(address = %frontend.address(), id = frontend.id(), "frontend is listening");
    shutdown.cancelled().await;
    frontend.stop().await;
    Ok(())
}
